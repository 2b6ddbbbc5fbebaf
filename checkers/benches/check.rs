//! From the bytes of a history to its verdict: time grows with the number of operations, and
//! not faster.
//!
//! `cargo bench -p checkers`. Throughput is told in operations a second, so near-linear growth
//! shows as a throughput that stays the same.

#[path = "../tests/simulation/mod.rs"]
mod simulation;

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

fn check(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("check");
    group.sample_size(10).warm_up_time(Duration::from_millis(500));
    for operations in [10_000, 100_000, 1_000_000] {
        let shape = simulation::Shape::queue(7, operations);
        let mut text = Vec::new();
        simulation::simulate(&shape, &mut |event| {
            if serde_json::to_writer(&mut text, event).is_ok() {
                text.push(b'\n');
            }
        });
        group.throughput(Throughput::Elements(operations as u64));
        group.bench_with_input(BenchmarkId::from_parameter(operations), &text, |bench, text| {
            bench.iter(|| checkers::check(black_box(text.as_slice())));
        });
    }
    group.finish();
}

criterion_group!(benches, check);
criterion_main!(benches);

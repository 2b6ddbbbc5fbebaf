//! What the check in front of the decoder costs, beside the decoding itself.
//!
//! `cargo bench -p broker --bench wire`. The check of a produce request must take the same time
//! however long its records are: it does not touch them.

use std::hint::black_box;

use broker::wire::shape::check;
use bytes::{Bytes, BytesMut};
use criterion::{Criterion, criterion_group, criterion_main};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{FetchRequest, ProduceRequest};
use kafka_protocol::protocol::{Request, StrBytes};

const PRODUCE_VERSION: i16 = 9;
const FETCH_VERSION: i16 = 12;

fn produce(partitions: i32, records_bytes: usize) -> ProduceRequest {
    let records = Bytes::from(vec![7; records_bytes]);
    let partitions = (0..partitions).map(|index| {
        PartitionProduceData::default().with_index(index).with_records(Some(records.clone()))
    });
    let topic = TopicProduceData::default()
        .with_name(StrBytes::from_static_str("orders").into())
        .with_partition_data(partitions.collect());
    ProduceRequest::default().with_acks(-1).with_topic_data(vec![topic])
}

fn fetch(partitions: i32) -> FetchRequest {
    let partitions = (0..partitions).map(|index| {
        FetchPartition::default().with_partition(index).with_partition_max_bytes(1 << 20)
    });
    let topic = FetchTopic::default()
        .with_topic(StrBytes::from_static_str("orders").into())
        .with_partitions(partitions.collect());
    FetchRequest::default().with_topics(vec![topic])
}

fn compare<R: Request>(criterion: &mut Criterion, name: &str, version: i16, request: &R) {
    let mut body = BytesMut::new();
    if let Err(error) = request.encode(&mut body, version) {
        panic!("{name}: {error}");
    }
    let body = body.freeze();
    let mut group = criterion.benchmark_group(name);
    group.bench_function("check", |bench| {
        bench.iter(|| check(R::KEY, version, black_box(&body)));
    });
    group.bench_function("decode", |bench| {
        bench.iter(|| R::decode(&mut black_box(&body).clone(), version));
    });
    group.finish();
}

fn wire(criterion: &mut Criterion) {
    compare(criterion, "produce, 1 x 100 B", PRODUCE_VERSION, &produce(1, 100));
    compare(criterion, "produce, 1 x 1 MiB", PRODUCE_VERSION, &produce(1, 1 << 20));
    compare(criterion, "produce, 100 x 16 KiB", PRODUCE_VERSION, &produce(100, 16 << 10));
    compare(criterion, "fetch, 1", FETCH_VERSION, &fetch(1));
    compare(criterion, "fetch, 1000", FETCH_VERSION, &fetch(1000));
}

criterion_group!(benches, wire);
criterion_main!(benches);

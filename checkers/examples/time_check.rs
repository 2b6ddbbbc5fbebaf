//! Judges a history and tells how long that took and how much memory:
//! `cargo run --release -p checkers --example time_check -- FILE`.
#![allow(clippy::print_stdout, reason = "a program for a person")]
#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::error::Error;
use std::fs::{self, File};
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: time_check FILE")?;
    let bytes = fs::metadata(&path)?.len();
    let begun = Instant::now();
    let history = history::History::read(File::open(&path)?)?;
    let read = begun.elapsed();
    let verdict = checkers::judge(&history);
    let judging = begun.elapsed().saturating_sub(read);
    let all = read + judging;
    let stats = &verdict.stats;
    println!("{bytes} bytes, {} lines, {} operations", stats.events, stats.operations);
    println!("read in {read:.2?}, judged in {judging:.2?}, together {all:.2?}");
    println!("verdict: {}", verdict.valid);
    for (name, anomaly) in &verdict.anomalies {
        println!("{name}: {} ({})", anomaly.count, anomaly.valid);
    }
    for (name, report) in &verdict.checkers {
        for reason in &report.reasons {
            println!("{name}: {reason}");
        }
    }
    // Linux tells the peak of resident memory here.
    let process = fs::read_to_string("/proc/self/status").unwrap_or_default();
    for line in process.lines().filter(|line| line.starts_with("VmHWM")) {
        println!("{line}");
    }
    Ok(())
}

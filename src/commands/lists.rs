//! `highwater nemeses` and `highwater workloads`.

use std::fmt::Write as _;

use nemesis::{CATALOG, FaultKind, PartitionKind, Target};

use crate::exit::Exit;
use crate::preflight;

/// Lists the faults, and whether each can run here.
pub(crate) fn nemeses() -> Exit {
    let mut text = String::new();
    for fault in &CATALOG {
        let _ = writeln!(text, "{:<10} {}", fault.name, fault.sentence);
        if fault.kind == FaultKind::Partition {
            let shapes: Vec<String> = PartitionKind::all().map(|shape| shape.to_string()).collect();
            let _ = writeln!(text, "{:<10} shapes: {}", "", shapes.join(", "));
        }
    }
    let targets: Vec<String> = Target::USUAL.iter().map(ToString::to_string).collect();
    let _ = writeln!(text, "\ntargets of kill, stop and pause: {}", targets.join(", "));
    text.push_str(&here());
    super::print(&text);
    Exit::Valid
}

/// Lists the workloads, and whether each can run here.
pub(crate) fn workloads() -> Exit {
    let mut text = String::new();
    for workload in workloads::WORKLOADS {
        let _ = writeln!(text, "{:<10} {}", workload.name, workload.summary);
    }
    text.push_str(&here());
    super::print(&text);
    Exit::Valid
}

/// Every fault and workload runs on every backend; what differs is which backends run here.
fn here() -> String {
    let mut text = String::from("\nbackend    can it run here\n");
    for (name, can) in [("namespaces", preflight::namespaces()), ("docker", preflight::docker())] {
        let told = match can {
            Ok(()) => "yes".to_owned(),
            Err(failure) => format!("no: {failure}"),
        };
        let _ = writeln!(text, "{name:<10} {told}");
    }
    text
}

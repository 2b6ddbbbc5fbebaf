//! A verdict as a person reads it.

use std::fmt::Write as _;

use checkers::{Anomaly, Example, FaultWindow, Latency, Stats, Validity, Verdict};

use crate::store::{RunDir, TestFile};

/// How many examples of one anomaly are shown; `verdict.json` has more.
const EXAMPLES_SHOWN: usize = 2;

/// The whole report of a stored run.
pub(crate) fn run_report(run: &RunDir, test: &TestFile, verdict: &Verdict) -> String {
    let mut report = String::new();
    let plan = &test.plan;
    let _ = writeln!(
        report,
        "{} {} on {}, {} brokers{}, workload {}, seed {}",
        plan.cluster.system,
        test.versions.get(&plan.cluster.system).unwrap_or(&plan.cluster.version),
        plan.cluster.backend,
        plan.cluster.brokers,
        match plan.cluster.controllers {
            0 => String::new(),
            count => format!(" + {count} controllers"),
        },
        plan.workload,
        plan.seed
    );
    report.push_str(&verdict_report(verdict));
    let _ = writeln!(report, "\nfiles  {}", run.path().display());
    let _ = writeln!(report, "again  highwater check {}", run.path().display());
    report
}

/// The report of a verdict alone, for histories that come without a run.
pub(crate) fn verdict_report(verdict: &Verdict) -> String {
    let mut text = format!("\n{}\n", headline(verdict.valid));
    for (name, anomaly) in &verdict.anomalies {
        text.push_str(&anomaly_report(name, anomaly));
    }
    let open = verdict.checkers.iter().filter(|(_, result)| result.valid != Validity::True);
    for (name, result) in open {
        for reason in &result.reasons {
            let _ = writeln!(text, "  {name}: {reason}");
        }
    }
    for warning in &verdict.stats.warnings {
        let _ = writeln!(text, "  warning: {warning}");
    }
    text.push_str(&stats_report(&verdict.stats));
    text
}

fn headline(valid: Validity) -> &'static str {
    match valid {
        Validity::True => {
            "VALID: every acknowledged write survived, and nothing was seen that later vanished"
        }
        Validity::False => "INVALID: the cluster broke a promise",
        Validity::Unknown => "UNKNOWN: there is not enough to judge",
    }
}

fn anomaly_report(name: &str, anomaly: &Anomaly) -> String {
    let weight = match anomaly.valid {
        Validity::True => " (allowed)",
        Validity::False => "",
        Validity::Unknown => " (cannot be told)",
    };
    let mut text = format!("\n  {name} x {}{weight}\n", anomaly.count);
    // What is allowed is counted, not explained.
    let shown = if anomaly.valid == Validity::True { 0 } else { EXAMPLES_SHOWN };
    for example in anomaly.examples.iter().take(shown) {
        let _ = writeln!(text, "    {}", example_line(example));
    }
    text
}

fn example_line(example: &Example) -> String {
    let lines: Vec<String> = example.ops.iter().map(|index| (index + 1).to_string()).collect();
    if lines.is_empty() {
        example.text.clone()
    } else {
        format!("{} [history lines {}]", example.text, lines.join(", "))
    }
}

fn stats_report(stats: &Stats) -> String {
    let mut text = String::from(
        "\n  operations          ok      fail      info       p50       p99       max\n",
    );
    for (f, function) in &stats.by_f {
        let outcomes = &function.outcomes;
        let _ =
            write!(text, "  {f:<12} {:>9} {:>9} {:>9}", outcomes.ok, outcomes.fail, outcomes.info);
        let _ = match &function.latency {
            Some(latency) => writeln!(text, " {}", quantiles(latency)),
            None => writeln!(text),
        };
    }
    if !stats.fault_windows.is_empty() {
        let _ = writeln!(
            text,
            "\n  {:<44} {:>8} {:>8} {:>9} {:>9} {:>9} {:>10}",
            "faults", "from", "to", "ok", "fail", "info", "send p99"
        );
        for window in &stats.fault_windows {
            text.push_str(&window_line(window));
        }
    }
    if let Some(gap) = &stats.availability {
        let _ = writeln!(
            text,
            "\n  longest time without an ok send  {} (from {:.1} s)",
            millis(gap.longest_gap_ns),
            seconds(gap.start_ns)
        );
    }
    if let Some(lag) = &stats.realtime_lag {
        let _ = writeln!(
            text,
            "  stalest poll                     {} ({})",
            millis(lag.max_ns),
            lag.key
        );
    }
    let (acked, read, unread) = stats
        .keys
        .values()
        .fold((0, 0, 0), |sum, key| (sum.0 + key.acked, sum.1 + key.read, sum.2 + key.unread));
    let _ = writeln!(
        text,
        "  values                           {acked} acknowledged, {read} read, {unread} acknowledged and never read, on {} keys",
        stats.keys.len()
    );
    text
}

fn window_line(window: &FaultWindow) -> String {
    let mut name = match &window.target {
        Some(target) => format!("{} {target}", window.fault),
        None => window.fault.clone(),
    };
    if name.chars().count() > 44 {
        name = name.chars().take(43).chain(['…']).collect();
    }
    let until = format!("{:.1} s", seconds(window.end_ns));
    let until = if window.healed { until } else { "open".into() };
    let p99 = window.latency.get("send").map_or(String::new(), |latency| millis(latency.p99_ns));
    let outcomes = &window.outcomes;
    format!(
        "  {name:<44} {:>6.1} s {until:>8} {:>9} {:>9} {:>9} {p99:>10}\n",
        seconds(window.start_ns),
        outcomes.ok,
        outcomes.fail,
        outcomes.info
    )
}

fn quantiles(latency: &Latency) -> String {
    let [p50, p99, max] = [latency.p50_ns, latency.p99_ns, latency.max_ns].map(millis);
    format!("{p50:>9} {p99:>9} {max:>9}")
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn millis(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    if ms < 10.0 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

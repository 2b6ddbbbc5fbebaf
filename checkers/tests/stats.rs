//! What a verdict tells besides: counts, latencies, faults, and how stale reads were.

use checkers::{Availability, Outcomes, Verdict};
use serde_json::{Value as Json, json};

/// Lines of a history, indices filled in.
#[derive(Default)]
struct Lines(String, u64);

impl Lines {
    fn add(&mut self, time: u64, process: impl Into<Json>, kind: &str, f: &str, rest: &Json) {
        let mut line = json!({
            "index": self.1, "time": time, "process": process.into(), "type": kind, "f": f,
        });
        if let (Some(line), Some(rest)) = (line.as_object_mut(), rest.as_object()) {
            line.extend(rest.clone());
        }
        self.0 += &line.to_string();
        self.0.push('\n');
        self.1 += 1;
    }

    fn send(&mut self, asked: u64, begun: u64, done: u64, value: i64, offset: i64) {
        let process = u64::try_from(value).unwrap_or(0) + 100;
        let invoke = json!({"value": [["send", "k-0", value]], "scheduled": asked});
        self.add(begun, process, "invoke", "send", &invoke);
        let ok = json!({"value": [["send", "k-0", [offset, value]]]});
        self.add(done, process, "ok", "send", &ok);
    }

    fn poll(&mut self, begun: u64, done: u64, process: u64, records: &Json) {
        self.add(begun, process, "invoke", "poll", &json!({"value": [["poll"]]}));
        self.add(done, process, "ok", "poll", &json!({"value": [["poll", records]]}));
    }

    fn judge(&self) -> Verdict {
        match checkers::check(self.0.as_bytes()) {
            Ok(verdict) => verdict,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn latency_counts_from_the_scheduled_time() {
    let mut lines = Lines::default();
    lines.send(1_000, 6_000, 11_000, 0, 0);
    lines.poll(20_000, 23_000, 1, &json!({"k-0": [[0, 0]]}));
    let stats = lines.judge().stats;
    let latency = |f: &str| stats.by_f[f].latency.map(|latency| latency.max_ns);
    let near = |found: Option<u64>, wanted: u64| {
        let found = found.unwrap_or_default();
        assert!(found.abs_diff(wanted) <= wanted / 500, "{found} instead of {wanted}");
    };
    near(latency("send"), 10_000);
    near(latency("poll"), 3_000);
    assert_eq!(stats.keys["k-0"].acked, 1);
    assert_eq!(stats.keys["k-0"].read, 1);
    assert_eq!(stats.keys["k-0"].last_offset, Some(0));
    assert_eq!(stats.duration_ns, 23_000);
}

#[test]
fn a_window_counts_what_ended_in_it_and_tells_whether_it_bit() {
    let mut lines = Lines::default();
    lines.send(0, 0, 1_000, 0, 0);
    let fault = |lines: &mut Lines, time: u64, f: &str, rest: Json| {
        lines.add(time, "nemesis", "info", f, &json!({ "value": rest }));
    };
    fault(&mut lines, 2_000, "kill", json!({"id": 3, "phase": "asked", "nodes": ["n1", "n2"]}));
    lines.send(2_500, 2_500, 2_600, 1, 1);
    fault(&mut lines, 3_000, "kill", json!({"id": 3, "phase": "done", "outcome": "installed"}));
    lines.add(4_000, 7, "invoke", "send", &json!({"value": [["send", "k-0", 2]]}));
    let failed = json!({"value": [["send", "k-0", 2]], "error": "timed-out: after 1 s"});
    lines.add(5_000, 7, "info", "send", &failed);
    lines.send(5_500, 5_500, 5_600, 3, 2);
    fault(&mut lines, 6_000, "pause", json!({"id": 4, "phase": "asked"}));
    fault(&mut lines, 6_100, "pause", json!({"id": 4, "phase": "done", "outcome": "skipped"}));
    fault(&mut lines, 7_000, "start", json!({"id": 3, "phase": "asked"}));
    fault(&mut lines, 8_000, "start", json!({"id": 3, "phase": "done", "outcome": "healed"}));
    lines.poll(9_000, 9_500, 1, &json!({"k-0": [[0, 0], [1, 1], [2, 3]]}));
    let stats = lines.judge().stats;
    let [window] = stats.fault_windows.as_slice() else {
        panic!("{:?}", stats.fault_windows);
    };
    assert_eq!((window.id, window.fault.as_str()), (3, "kill"));
    assert_eq!(window.target.as_deref(), Some("n1, n2"));
    assert_eq!((window.start_ns, window.end_ns, window.healed), (3_000, 8_000, true));
    assert_eq!(window.outcomes, Outcomes { ok: 1, fail: 0, info: 1 });
    assert!(window.bit());
    assert_eq!(window.latency["send"].count, 1);
    assert_eq!(window.ops, [5, 13]);
    assert_eq!(stats.by_f["send"].errors["timed-out"], 1);
}

#[test]
fn availability_is_the_longest_wait_for_an_ok_send() {
    let second = 1_000_000_000;
    let mut lines = Lines::default();
    lines.send(0, 0, second / 10, 0, 0);
    // Asked, and answered only after three seconds.
    lines.send(second, second, 4 * second, 1, 1);
    // Nobody asked for a minute.
    lines.send(64 * second, 64 * second, 65 * second, 2, 2);
    lines.poll(66 * second, 67 * second, 1, &json!({"k-0": [[0, 0], [1, 1], [2, 2]]}));
    let gap = lines.judge().stats.availability;
    let longest_gap_ns = 3 * second;
    assert_eq!(gap, Some(Availability { longest_gap_ns, start_ns: second, end_ns: 4 * second }));
}

#[test]
fn lag_is_told_from_when_a_newer_record_was_known() {
    let mut lines = Lines::default();
    lines.send(0, 0, 1_000, 0, 0);
    lines.poll(1_100, 1_200, 1, &json!({"k-0": [[0, 0]]}));
    lines.send(1_500, 1_500, 2_000, 1, 1);
    lines.poll(2_500, 2_600, 1, &json!({}));
    lines.poll(7_000, 7_100, 1, &json!({}));
    lines.poll(7_500, 7_600, 1, &json!({"k-0": [[1, 1]]}));
    let Some(lag) = lines.judge().stats.realtime_lag else {
        panic!("no lag");
    };
    assert_eq!((lag.max_ns, lag.key.as_str(), lag.time_ns), (5_000, "k-0", 7_000));
    assert_eq!(lag.ops, [5, 8, 9]);
}

#[test]
fn who_reads_from_the_beginning_is_not_late_for_what_was_there() {
    let mut lines = Lines::default();
    lines.send(0, 0, 1_000, 0, 0);
    let assign = json!({"value": ["k-0"], "seek-to-beginning": true});
    lines.add(90_000, 1, "invoke", "assign", &assign);
    lines.add(90_100, 1, "ok", "assign", &assign);
    lines.poll(90_200, 90_300, 1, &json!({}));
    lines.poll(90_500, 90_600, 1, &json!({"k-0": [[0, 0]]}));
    let lag = lines.judge().stats.realtime_lag.map(|lag| lag.max_ns);
    assert_eq!(lag, Some(100));
}

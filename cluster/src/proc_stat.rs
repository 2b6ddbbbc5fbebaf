//! What `/proc/PID/stat` tells of a process.

use std::{fmt, fs};

/// When process `pid` started, in clock ticks since boot: with the pid it names one process and no
/// later one. `None` when it is gone.
pub fn start_ticks(pid: u32) -> Option<u64> {
    parse_start_ticks(&read(pid)?)
}

/// The letter of its state; `None` when it is gone.
pub(crate) fn state_of(pid: i32) -> Option<char> {
    behind_name(&read(pid)?)?.chars().next()
}

fn read(pid: impl fmt::Display) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/stat")).ok()
}

/// The second field is the program's name, which may hold spaces and brackets.
fn behind_name(stat: &str) -> Option<&str> {
    Some(stat.rsplit_once(") ")?.1)
}

/// A zombie is gone: it only has not been waited for.
fn parse_start_ticks(stat: &str) -> Option<u64> {
    let mut fields = behind_name(stat)?.split(' ');
    let state = fields.next()?;
    // Field 22 of the file; the state is the third.
    let ticks = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_ticks_are_found_behind_any_program_name() {
        let tail = "S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 10 11";
        assert_eq!(parse_start_ticks(&format!("12 (a) b) {tail}")), Some(777));
        assert_eq!(parse_start_ticks("12 (x) Z 1"), None);
        assert_eq!(parse_start_ticks(&format!("12 (x) {}", tail.replacen('S', "Z", 1))), None);
        assert_eq!(parse_start_ticks(""), None);
    }
}

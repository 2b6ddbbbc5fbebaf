//! What the numbers depend on besides the systems.

use std::fs;
use std::thread::available_parallelism;

use serde::Serialize;

/// The machine and the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Machine {
    /// That this process may use.
    pub(crate) cores: usize,
    /// As the processor names itself.
    pub(crate) cpu_model: String,
    /// In all.
    pub(crate) memory_mib: u64,
    /// Name, release and architecture.
    pub(crate) kernel: String,
    /// `release` or `debug`: a driver that was not optimised is slow itself.
    pub(crate) driver_build: &'static str,
}

impl Machine {
    /// What this one is.
    pub(crate) fn this() -> Self {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let memory_kib = field(&read("/proc/meminfo"), "MemTotal").and_then(kib);
        Self {
            cores: available_parallelism().map_or(0, usize::from),
            cpu_model: field(&read("/proc/cpuinfo"), "model name").unwrap_or("unknown").to_owned(),
            memory_mib: memory_kib.unwrap_or_default() / 1024,
            kernel: format!(
                "{} {} {}",
                read("/proc/sys/kernel/ostype").trim(),
                read("/proc/sys/kernel/osrelease").trim(),
                std::env::consts::ARCH
            ),
            driver_build: if cfg!(debug_assertions) { "debug" } else { "release" },
        }
    }
}

/// Load of the machine, average of the last minute; -1 where the kernel does not say.
pub(crate) fn load_1min() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(-1.0)
}

/// The value of the first line `name: value` of a file below `/proc`.
pub(super) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
}

/// `123 kB` as a number.
pub(super) fn kib(value: &str) -> Option<u64> {
    value.strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "VmRSSx:\t 1 kB\nVmRSS:\t  2048 kB\nmodel name\t: Some CPU @ 2: GHz\n";
        assert_eq!(field(text, "VmRSS").and_then(kib), Some(2048));
        assert_eq!(field(text, "model name"), Some("Some CPU @ 2: GHz"));
        assert_eq!(field(text, "Pss"), None);
        assert_eq!(kib("12"), None);
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = Machine::this();
        assert!(machine.cores > 0 && machine.memory_mib > 0, "{machine:?}");
        assert!(load_1min() >= 0.0);
    }
}

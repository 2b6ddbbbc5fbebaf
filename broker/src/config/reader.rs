//! Takes settings one by one and remembers everything that is wrong with them.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

/// Settings not yet taken, and what was wrong with those that were.
pub(super) struct Reader {
    left: BTreeMap<String, String>,
    problems: Vec<String>,
}

impl Reader {
    pub(super) fn new(settings: BTreeMap<String, String>) -> Self {
        Self { left: settings, problems: Vec::new() }
    }

    pub(super) fn problem(&mut self, text: String) {
        self.problems.push(text);
    }

    /// Problems found so far.
    pub(super) fn into_problems(self) -> Vec<String> {
        self.problems
    }

    /// A setting that may be absent. `read` says what it should have been.
    pub(super) fn optional<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, &'static str>,
    ) -> Option<T> {
        let value = self.left.remove(name)?;
        match read(value.trim()) {
            Ok(value) => Some(value),
            Err(wanted) => {
                self.problem(format!("{name} is `{value}`; it must be {wanted}"));
                None
            }
        }
    }

    /// A setting that must be there. `None` after a problem was noted.
    pub(super) fn required<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, &'static str>,
    ) -> Option<T> {
        if !self.left.contains_key(name) {
            self.problem(format!("{name} is missing"));
        }
        self.optional(name, read)
    }

    /// A setting with a default, which stands in where a problem was noted.
    pub(super) fn or<T>(
        &mut self,
        name: &str,
        default: T,
        read: impl FnOnce(&str) -> Result<T, &'static str>,
    ) -> T {
        self.optional(name, read).unwrap_or(default)
    }

    pub(super) fn text(&mut self, name: &str, default: &str) -> String {
        self.left.remove(name).unwrap_or_else(|| default.to_owned())
    }

    pub(super) fn number<T: FromStr + PartialOrd + Display + Copy>(
        &mut self,
        name: &str,
        default: T,
        least: T,
    ) -> T {
        let Some(value) = self.left.remove(name) else { return default };
        if let Some(number) = value.trim().parse().ok().filter(|number| *number >= least) {
            number
        } else {
            self.problem(format!("{name} is `{value}`; it must be a number from {least} on"));
            default
        }
    }

    pub(super) fn millis(&mut self, name: &str, default: u64) -> Duration {
        Duration::from_millis(self.number(name, default, 1))
    }

    pub(super) fn flag(&mut self, name: &str, default: bool) -> bool {
        self.or(name, default, |text| text.parse().map_err(|_| "true or false"))
    }

    /// Everything under a name that is `wanted`.
    pub(super) fn take_where(&mut self, wanted: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
        let (taken, left) =
            std::mem::take(&mut self.left).into_iter().partition(|(name, _)| wanted(name));
        self.left = left;
        taken
    }

    /// What is left has a name that nobody knows.
    pub(super) fn refuse_the_rest(&mut self) {
        for name in std::mem::take(&mut self.left).into_keys() {
            self.problem(format!("{name} is not a setting of this broker"));
        }
    }
}

//! Processes while a history is read: who has what open, and who is over.

use rustc_hash::FxHashMap;

use crate::names::NameId;

/// Numbers below this are looked up by place.
const SMALL: u64 = 1 << 20;

/// One read or write as it was invoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Send { key: NameId, value: i64 },
    Poll,
}

/// An invocation.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) index: u32,
    pub(super) function: NameId,
    pub(super) time_ns: u64,
    /// When it was scheduled, or else when it was invoked.
    pub(super) wanted_ns: u64,
    pub(super) ops: Vec<Ask>,
}

/// May the process go on?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// It may begin an operation.
    #[default]
    Idle,
    /// It has begun one: `asked`.
    Open,
    /// Its last ended info.
    Over,
}

/// One process.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) phase: Phase,
    /// The last invocation.
    pub(super) asked: Asked,
    /// Index of the last completion.
    pub(super) ended: u32,
}

/// All processes, numbered in the order in which they appear.
#[derive(Default)]
pub(super) struct Processes {
    states: Vec<State>,
    /// The file's number of each.
    numbers: Vec<u64>,
    /// By the file's number, one added; 0 where there is none.
    small: Vec<u32>,
    large: FxHashMap<u64, u32>,
}

impl Processes {
    /// The place of the process that the file calls `number`.
    pub(super) fn number(&mut self, number: u64) -> u32 {
        let known = if number < SMALL {
            let place = usize::try_from(number).unwrap_or(usize::MAX);
            if place >= self.small.len() {
                self.small.resize(place + 1, 0);
            }
            self.small[place].checked_sub(1)
        } else {
            self.large.get(&number).copied()
        };
        known.unwrap_or_else(|| self.add(number))
    }

    fn add(&mut self, number: u64) -> u32 {
        // There are fewer processes than lines.
        let place = u32::try_from(self.states.len()).unwrap_or(u32::MAX);
        self.states.push(State::default());
        self.numbers.push(number);
        if number < SMALL {
            let slot = usize::try_from(number).unwrap_or(usize::MAX);
            self.small[slot] = place + 1;
        } else {
            self.large.insert(number, place);
        }
        place
    }

    pub(super) fn state(&mut self, process: u32) -> &mut State {
        &mut self.states[process as usize]
    }

    /// What is open, in the order of invocation.
    pub(super) fn take_open(&mut self) -> Vec<(u32, Asked)> {
        let mut open: Vec<(u32, Asked)> = (0..)
            .zip(&mut self.states)
            .filter(|(_, state)| state.phase == Phase::Open)
            .map(|(process, state)| (process, std::mem::take(&mut state.asked)))
            .collect();
        open.sort_by_key(|(_, asked)| asked.index);
        open
    }

    pub(super) fn into_numbers(self) -> Vec<u64> {
        self.numbers
    }
}

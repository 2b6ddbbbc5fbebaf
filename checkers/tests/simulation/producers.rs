//! Sends: each is invoked, lands or not, and is answered or not.

use history::{Draft, Function, Kind, MicroOp, Process, Value};
use rand::RngExt;

use super::World;

/// What will become of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It lands, and is acknowledged, perhaps without its offset.
    Acknowledged { offset: bool },
    /// It lands, and nobody hears of it.
    LandsUnheard,
    /// It is given up, and lands later.
    LandsLate,
    /// It is given up, and never lands.
    Lost,
    /// It is refused.
    Refused,
}

/// A send on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenSend {
    process: u64,
    key: usize,
    value: i64,
    fate: Fate,
    landed: Option<i64>,
    answered: bool,
}

impl World<'_> {
    fn send_value(&self, key: usize, value: i64) -> Value {
        let key = self.keys[key].clone();
        Value::Ops(vec![MicroOp::Send { key, value }])
    }

    fn sent_value(&self, key: usize, offset: Option<i64>, value: i64) -> Value {
        let key = self.keys[key].clone();
        Value::Ops(vec![MicroOp::Sent { key, offset, value }])
    }

    pub(super) fn begin_send(&mut self) {
        let key = self.below(self.keys.len());
        let value = self.fresh_value(key);
        let process = match self.idle.pop_first() {
            Some(process) => process,
            None => self.fresh_process(),
        };
        let asked = self.send_value(key, value);
        let mut invoke = Draft::new(Process::Client(process), Kind::Invoke, Function::Send, asked);
        if self.rng.random_bool(0.9) {
            invoke.scheduled_ns = Some(self.time_ns);
        }
        self.record(invoke);
        let fate = if self.trouble() {
            match self.below(5) {
                0 => Fate::Acknowledged { offset: false },
                1 => Fate::LandsUnheard,
                2 => Fate::LandsLate,
                3 => Fate::Lost,
                _ => Fate::Refused,
            }
        } else {
            Fate::Acknowledged { offset: true }
        };
        self.open.push(OpenSend { process, key, value, fate, landed: None, answered: false });
    }

    /// Moves one open send on.
    pub(super) fn step_send(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let place = self.below(self.open.len());
        let mut send = self.open[place];
        let lands =
            matches!(send.fate, Fate::Acknowledged { .. } | Fate::LandsUnheard | Fate::LandsLate);
        let answer_first = send.fate == Fate::LandsLate;
        if lands && send.landed.is_none() && (send.answered || !answer_first) {
            send.landed = Some(self.append(send.key, send.value));
        } else {
            self.answer(&send);
            send.answered = true;
        }
        if send.answered && (send.landed.is_some() || !lands) {
            self.open.swap_remove(place);
        } else {
            self.open[place] = send;
        }
    }

    fn answer(&mut self, send: &OpenSend) {
        let (kind, error) = match send.fate {
            Fate::Acknowledged { .. } => (Kind::Ok, None),
            Fate::LandsUnheard | Fate::LandsLate | Fate::Lost => {
                (Kind::Info, Some("timed-out: no answer"))
            }
            Fate::Refused => (Kind::Fail, Some("refused")),
        };
        let value = match send.fate {
            Fate::Acknowledged { offset } => {
                let known = send.landed.filter(|_| offset);
                self.sent_value(send.key, known, send.value)
            }
            _ => self.send_value(send.key, send.value),
        };
        let mut event = Draft::new(Process::Client(send.process), kind, Function::Send, value);
        event.error = error.map(str::to_owned);
        self.record(event);
        if kind != Kind::Info {
            self.idle.insert(send.process);
        }
    }

    /// A last value, acknowledged.
    pub(super) fn closing_write(&mut self, key: usize) {
        let value = self.fresh_value(key);
        let process = self.fresh_process();
        let asked = self.send_value(key, value);
        self.client(process, Kind::Invoke, Function::Send, asked);
        let offset = self.append(key, value);
        let done = self.sent_value(key, Some(offset), value);
        self.client(process, Kind::Ok, Function::Send, done);
    }
}

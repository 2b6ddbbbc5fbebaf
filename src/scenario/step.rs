//! One step of a scenario: a line such as `pause L` or `await isr of t-0 is L,F within 20s`.
//!
//! | step | meaning |
//! |---|---|
//! | `let L = leader of t-0` | names nodes, as they are now; names begin with a capital letter |
//! | `send 10 to t-0 acks=all within 5s` | sends fresh values, which must all be acknowledged |
//! | `attempt 10 to t-0 acks=1 within 5s` | the same, whatever comes of it |
//! | `read t-0` | reads from the beginning to where the log ends now |
//! | `load on`, `load off` | the workload of the scenario beside the steps |
//! | `kill L`, `stop L`, `pause L`, `begin-stop L` | the faults of these names; the last is SIGTERM, without waiting for the end |
//! | `power-off L` | what their disks were not told to sync is gone, and they with it |
//! | `fill-disk L`, `break-disk L` | nothing fits on their disks any more; their disks fail |
//! | `spoil t-0 on F by flip-bit` | on a stopped node's disk; also `cut-tail 20` (bytes), `empty-epochs`, `set-hw 5` |
//! | `sync all` | their disks get all that was written so far |
//! | `slow F to 30kbit` | what they send is limited to that rate a second |
//! | `start L`, `resume L`, `hurry L` | undoes them, for these nodes |
//! | `cut L from F, controllers` | links cut, both ways; `cut-one-way`: from the first to the second |
//! | `reconnect`, `reconnect L from F` | lifts every cut, or the one that was made in these words |
//! | `impair L from F, clients by delay=50ms jitter=20ms loss=5%` | links made bad, both ways; also `duplicate=2%`, `reorder=5%`, `corrupt=1%`, `rate=500kbit`; `impair-one-way`: from the first to the second; `repair` makes all good, `repair L from F by …` what was said in these words |
//! | `reassign t-0 to L,F,N` | these hold the partition from now on; `elect t-0`: its first replica leads |
//! | `hold answers Fetch from L to F` | messages wait where they are; also `requests`, and `lose`: they are gone, with their connection; `any`: all kinds; `… after 1`: the first passes |
//! | `refuse AlterPartition from L to controllers with INELIGIBLE_REPLICA` | they are answered so and never arrive |
//! | `let-through`, `let-through answers Fetch from L to F` | lifts all of that, or what was said in these words |
//! | `await CONDITION within 20s` | goes on when it holds; if it never does, nothing is shown |
//! | `expect CONDITION within 20s` | if it does not come, that is an anomaly of the cluster |
//! | `expect recovery within 20s` | the same of everything that a healed cluster must do |
//!
//! Nodes are `n1`, a name, `leader of KEY`, `followers of KEY`, `outsiders of KEY`, `controller`, `controllers`, `all`,
//! and for cuts `clients`; several are separated by commas.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use cluster::network::Impairment;
use cluster::relay::{Deed, Message, Side};
use cluster::{NodeName, Spoilage};
use history::Key;
use workloads::Acks;

/// Where none is given.
const DEFAULT_LIMIT: Duration = Duration::from_secs(30);

/// Nodes, or the clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// A node.
    Node(NodeName),
    /// What `let` called so.
    Named(String),
    /// Who leads the key.
    Leader(Key),
    /// Its other replicas.
    Followers(Key),
    /// Brokers without a replica of it.
    Outsiders(Key),
    /// The active controller.
    Controller,
    /// Every controller.
    Controllers,
    /// Every node.
    All,
    /// The clients.
    Clients,
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// One of these leads the key; none: nobody does.
    LeaderIs(Key, Vec<Who>),
    /// Somebody leads the key, and none of these.
    LeaderIsNot(Key, Vec<Who>),
    /// The ISR is made of these.
    IsrIs(Key, Vec<Who>),
    /// These are in the ISR.
    IsrHas(Key, Vec<Who>),
    /// None of these is in the ISR.
    IsrLacks(Key, Vec<Who>),
    /// The leader epoch of the key is this.
    EpochIs(Key, i32),
    /// These answer.
    Answer(Vec<Who>),
    /// Every broker that answers holds these for alive.
    Alive(Vec<Who>),
    /// Some broker that answers knows that these are not alive.
    Gone(Vec<Who>),
    /// The replicas of the key on these nodes have come that far.
    Reached(Mark, Key, Vec<Who>, i64),
    /// What was said in these words has stopped a message.
    Stopped(String),
}

/// A mark of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Its log end offset.
    LogEnd,
    /// Its high watermark.
    HighWatermark,
}

/// How a node is brought down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blow {
    /// SIGKILL.
    Kill,
    /// SIGTERM, and the end of it.
    Stop,
    /// SIGTERM.
    BeginStop,
    /// SIGSTOP.
    Pause,
    /// Loss of power.
    PowerOff,
    /// No room on the disk.
    FillDisk,
    /// A disk that fails.
    BreakDisk,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Names nodes; with several names each gets one.
    Let(Vec<String>, Vec<Who>),
    /// Sends.
    Send { count: usize, key: Key, acks: Acks, limit: Duration, must: bool },
    /// Reads.
    Read(Key),
    /// Begins or ends the workload.
    Load(bool),
    /// Brings nodes down.
    Strike(Blow, Vec<Who>),
    /// Moves a partition.
    Reassign(Key, Vec<Who>),
    /// Its first replica shall lead.
    Elect(Key),
    /// Spoils replicas on stopped nodes.
    Spoil(Spoilage, Key, Vec<Who>),
    /// Syncs disks.
    Sync(Vec<Who>),
    /// Limits what nodes send, kbit a second.
    Slow(Vec<Who>, u32),
    /// Helps nodes up.
    Release(Vec<Who>),
    /// Cuts links.
    Cut { from: Vec<Who>, to: Vec<Who>, both: bool, words: String },
    /// Makes links bad.
    Impair { from: Vec<Who>, to: Vec<Who>, both: bool, impairment: Impairment, words: String },
    /// Makes all good, or what was made bad in these words.
    Repair(Option<String>),
    /// Stops messages.
    Intercept {
        deed: Deed,
        side: Side,
        message: Message,
        from: Vec<Who>,
        to: Vec<Who>,
        /// The first so many pass.
        spared: u64,
        words: String,
    },
    /// Stops no messages any more, or not those that these words say.
    LetThrough(Option<String>),
    /// Lifts every cut, or the one made in these words.
    Reconnect(Option<String>),
    /// Waits.
    Await(Condition, Duration),
    /// The cluster owes this.
    Expect(Condition, Duration),
    /// The cluster owes a full recovery.
    ExpectRecovery(Duration),
}

/// A step and how it was written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// As written, without comment.
    pub(crate) text: String,
    /// What it does.
    pub(crate) action: Action,
}

impl Step {
    /// Needs nodes with disks of their own.
    pub(crate) fn needs_disks(&self) -> bool {
        matches!(self.action, Action::Strike(Blow::PowerOff | Blow::FillDisk | Blow::BreakDisk, _))
    }

    /// Needs relays between the nodes.
    pub(crate) fn stops_messages(&self) -> bool {
        matches!(self.action, Action::Intercept { .. })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Reads steps, one a line; `#` begins a comment.
///
/// # Errors
/// The number of the line, the line and what was expected.
pub(crate) fn parse_steps(text: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let step = line.parse().map_err(|why| format!("step line {number}, `{line}`: {why}"))?;
        steps.push(step);
    }
    if steps.is_empty() {
        return Err("there are no steps".into());
    }
    Ok(steps)
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let spaced = text.replace(',', " , ").replace('=', " = ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        Ok(Self { text: text.to_owned(), action: parse(&words)? })
    }
}

fn parse(words: &[&str]) -> Result<Action, String> {
    let (words, limit) = match words {
        [rest @ .., "within", time] => (
            rest,
            Some(humantime::parse_duration(time).map_err(|error| format!("`{time}`: {error}"))?),
        ),
        words => (words, None),
    };
    let timed = limit.unwrap_or(DEFAULT_LIMIT);
    let action = match words {
        ["send", rest @ ..] => send(rest, timed, true)?,
        ["attempt", rest @ ..] => send(rest, timed, false)?,
        ["await", rest @ ..] => Action::Await(condition(rest)?, timed),
        ["expect", "recovery"] => Action::ExpectRecovery(timed),
        ["expect", rest @ ..] => match condition(rest)? {
            Condition::EpochIs(..)
            | Condition::Answer(_)
            | Condition::Alive(_)
            | Condition::Gone(_)
            | Condition::Stopped(_)
            | Condition::Reached(Mark::LogEnd, ..) => {
                return Err("no anomaly has a name for that; use await".into());
            }
            owed => Action::Expect(owed, timed),
        },
        _ if limit.is_some() => {
            return Err("only send, attempt, await and expect have a limit".into());
        }
        ["let", rest @ ..] => {
            let at = rest.iter().position(|word| *word == "=").ok_or("`let NAME = NODES`")?;
            Action::Let(names(&rest[..at])?, nodes(&rest[at + 1..])?)
        }
        ["read", key] => Action::Read(key_of(key)?),
        ["load", "on"] => Action::Load(true),
        ["load", "off"] => Action::Load(false),
        ["reassign", key, "to", rest @ ..] => Action::Reassign(key_of(key)?, nodes(rest)?),
        ["elect", key] => Action::Elect(key_of(key)?),
        ["sync", rest @ ..] => Action::Sync(nodes(rest)?),
        ["start" | "resume" | "hurry", rest @ ..] => Action::Release(nodes(rest)?),
        ["let-through"] => Action::LetThrough(None),
        ["let-through", rest @ ..] => Action::LetThrough(Some(rest.join(" "))),
        ["reconnect"] => Action::Reconnect(None),
        ["reconnect", rest @ ..] => Action::Reconnect(Some(rest.join(" "))),
        ["repair"] => Action::Repair(None),
        ["repair", rest @ ..] => Action::Repair(Some(rest.join(" "))),
        words => return breaking(words),
    };
    Ok(action)
}

/// Steps that break something.
fn breaking(words: &[&str]) -> Result<Action, String> {
    Ok(match words {
        ["kill", rest @ ..] => Action::Strike(Blow::Kill, nodes(rest)?),
        ["stop", rest @ ..] => Action::Strike(Blow::Stop, nodes(rest)?),
        ["begin-stop", rest @ ..] => Action::Strike(Blow::BeginStop, nodes(rest)?),
        ["pause", rest @ ..] => Action::Strike(Blow::Pause, nodes(rest)?),
        ["power-off", rest @ ..] => Action::Strike(Blow::PowerOff, nodes(rest)?),
        ["fill-disk", rest @ ..] => Action::Strike(Blow::FillDisk, nodes(rest)?),
        ["break-disk", rest @ ..] => Action::Strike(Blow::BreakDisk, nodes(rest)?),
        ["spoil", key, "on", who @ .., "by", "flip-bit"] => {
            Action::Spoil(Spoilage::FlipBit, key_of(key)?, nodes(who)?)
        }
        ["spoil", key, "on", who @ .., "by", "empty-epochs"] => {
            Action::Spoil(Spoilage::EmptyEpochs, key_of(key)?, nodes(who)?)
        }
        ["spoil", key, "on", who @ .., "by", how, number] => {
            Action::Spoil(spoilage(how, number)?, key_of(key)?, nodes(who)?)
        }
        ["slow", who @ .., "to", rate] => {
            let kbit = rate.strip_suffix("kbit").and_then(|digits| digits.parse().ok());
            let kbit = kbit.filter(|kbit| *kbit > 0);
            Action::Slow(nodes(who)?, kbit.ok_or(format!("`{rate}` is no rate such as 30kbit"))?)
        }
        ["cut", rest @ ..] => cut(rest, true)?,
        ["cut-one-way", rest @ ..] => cut(rest, false)?,
        ["impair", rest @ ..] => impair(rest, true)?,
        ["impair-one-way", rest @ ..] => impair(rest, false)?,
        ["hold", rest @ ..] => intercept(Deed::Hold, rest, rest)?,
        ["lose", rest @ ..] => intercept(Deed::Lose, rest, rest)?,
        ["refuse", written @ ..] => {
            let [rest @ .., "with", refusal] = written else {
                return Err(
                    "expected `refuse AlterPartition from NODES to NODES with ERROR`".into()
                );
            };
            let deed = Deed::Refuse(refusal.parse()?);
            let words = [&["requests"][..], rest].concat();
            if rest.first() != Some(&"AlterPartition") {
                return Err("only AlterPartition can be refused".into());
            }
            intercept(deed, &words, written)?
        }
        [verb, ..] => {
            return Err(format!(
                "`{verb}` begins no step, or not so; there are let, send, attempt, read, load on, \
                 load off, kill, stop, begin-stop, pause, power-off, fill-disk, break-disk, sync, slow, spoil, start, \
                 resume, hurry, cut, cut-one-way, reconnect, impair, impair-one-way, repair, \
                 hold, lose, refuse, let-through, \
                 reassign, elect, await and expect"
            ));
        }
        [] => return Err("a step is missing".into()),
    })
}

fn send(words: &[&str], limit: Duration, must: bool) -> Result<Action, String> {
    let (count, key, acks) = match words {
        [count, "to", key] | [count, "to", key, "acks", "=", "all"] => (count, key, Acks::All),
        [count, "to", key, "acks", "=", "1"] => (count, key, Acks::Leader),
        [count, "to", key, "acks", "=", "0"] => (count, key, Acks::None),
        _ => return Err("expected `N to KEY`, then perhaps acks=all, acks=1 or acks=0".into()),
    };
    let count = count.parse().map_err(|_| format!("`{count}` is not a number of sends"))?;
    Ok(Action::Send { count, key: key_of(key)?, acks, limit, must })
}

fn spoilage(how: &str, number: &str) -> Result<Spoilage, String> {
    let wrong = || format!("`{number}` is no number that `{how}` could take");
    match how {
        "cut-tail" => number.parse().map(Spoilage::CutTail).map_err(|_| wrong()),
        "set-hw" => number.parse().map(Spoilage::SetHighWatermark).map_err(|_| wrong()),
        _ => Err("there are flip-bit, empty-epochs, `cut-tail BYTES` and `set-hw OFFSET`".into()),
    }
}

fn cut(words: &[&str], both: bool) -> Result<Action, String> {
    let at = words.iter().position(|word| *word == "from").ok_or("expected `NODES from NODES`")?;
    let (from, to) = (ends(&words[..at])?, ends(&words[at + 1..])?);
    Ok(Action::Cut { from, to, both, words: words.join(" ") })
}

fn impair(words: &[&str], both: bool) -> Result<Action, String> {
    let place = |word: &str| words.iter().position(|one| *one == word);
    let (from, by) = place("from")
        .zip(place("by"))
        .filter(|(from, by)| from < by)
        .ok_or("expected `NODES from NODES by delay=50ms`")?;
    let impairment = words[by + 1..].join(" ").replace(" = ", "=").parse()?;
    let (a, b) = (ends(&words[..from])?, ends(&words[from + 1..by])?);
    Ok(Action::Impair { from: a, to: b, both, impairment, words: words.join(" ") })
}

/// `SIDE MESSAGE from NODES to NODES`; `written` is what later steps call it by.
fn intercept(deed: Deed, words: &[&str], written: &[&str]) -> Result<Action, String> {
    let (words, spared) = match words {
        [rest @ .., "after", spared] => {
            (rest, spared.parse().map_err(|_| format!("`{spared}` is not a number of messages"))?)
        }
        all => (all, 0),
    };
    let written = match written {
        [rest @ .., "after", _] => rest,
        all => all,
    };
    let [side, message, "from", ends_of_it @ ..] = words else {
        return Err("expected `requests|answers MESSAGE from NODES to NODES`".into());
    };
    let side = match *side {
        "requests" => Side::Requests,
        "answers" => Side::Answers,
        other => return Err(format!("`{other}`: there are requests and answers")),
    };
    let at = ends_of_it.iter().position(|word| *word == "to").ok_or("`from NODES to NODES`")?;
    let (from, to) = (nodes(&ends_of_it[..at])?, nodes(&ends_of_it[at + 1..])?);
    Ok(Action::Intercept {
        deed,
        side,
        message: message.parse()?,
        from,
        to,
        spared,
        words: written.join(" "),
    })
}

fn condition(words: &[&str]) -> Result<Condition, String> {
    Ok(match words {
        ["leader", "of", key, "is", "none"] => Condition::LeaderIs(key_of(key)?, Vec::new()),
        ["leader", "of", key, "is", "not", rest @ ..] => {
            Condition::LeaderIsNot(key_of(key)?, nodes(rest)?)
        }
        ["leader", "of", key, "is", rest @ ..] => Condition::LeaderIs(key_of(key)?, nodes(rest)?),
        ["isr", "of", key, "is", rest @ ..] => Condition::IsrIs(key_of(key)?, nodes(rest)?),
        ["isr", "of", key, "has", rest @ ..] => Condition::IsrHas(key_of(key)?, nodes(rest)?),
        ["isr", "of", key, "lacks", rest @ ..] => Condition::IsrLacks(key_of(key)?, nodes(rest)?),
        ["epoch", "of", key, "is", epoch] => {
            let number = epoch.parse().map_err(|_| format!("`{epoch}` is not a leader epoch"))?;
            Condition::EpochIs(key_of(key)?, number)
        }
        [mark @ ("end" | "hw"), "of", key, "on", on @ .., "reaches", offset] => {
            let mark = if *mark == "end" { Mark::LogEnd } else { Mark::HighWatermark };
            let offset = offset.parse().map_err(|_| format!("`{offset}` is not an offset"))?;
            Condition::Reached(mark, key_of(key)?, nodes(on)?, offset)
        }
        [rest @ .., "stopped"] => Condition::Stopped(rest.join(" ")),
        [rest @ .., "are" | "is", "alive"] => Condition::Alive(nodes(rest)?),
        [rest @ .., "are" | "is", "gone"] => Condition::Gone(nodes(rest)?),
        [rest @ .., "answer" | "answers"] => Condition::Answer(nodes(rest)?),
        _ => {
            return Err(
                "expected `leader of KEY is [not] NODES`, `leader of KEY is none`, `isr of \
                        KEY is|has|lacks NODES`, `epoch of KEY is N`, `end|hw of KEY on NODES reaches OFFSET` or \
                        `NODES answer`, `NODES are alive`, `NODES are gone`, `WORDS stopped`"
                    .into(),
            );
        }
    })
}

/// Nodes, with no clients among them.
fn nodes(words: &[&str]) -> Result<Vec<Who>, String> {
    let ends = ends(words)?;
    if ends.contains(&Who::Clients) {
        return Err("clients can only be cut off".into());
    }
    Ok(ends)
}

fn ends(words: &[&str]) -> Result<Vec<Who>, String> {
    words.split(|word| *word == ",").map(who).collect()
}

fn who(words: &[&str]) -> Result<Who, String> {
    Ok(match words {
        ["leader", "of", key] => Who::Leader(key_of(key)?),
        ["followers", "of", key] => Who::Followers(key_of(key)?),
        ["outsiders", "of", key] => Who::Outsiders(key_of(key)?),
        ["controller"] => Who::Controller,
        ["controllers"] => Who::Controllers,
        ["all"] => Who::All,
        ["clients"] => Who::Clients,
        [name] if is_name(name) => Who::Named((*name).to_owned()),
        [node] => NodeName::try_from((*node).to_owned()).map(Who::Node).map_err(|_| {
            format!(
                "`{node}` is no node such as n1, and no name, which begins with a capital letter"
            )
        })?,
        [] => return Err("nodes are missing".into()),
        other => return Err(format!("`{}` names no nodes", other.join(" "))),
    })
}

fn names(words: &[&str]) -> Result<Vec<String>, String> {
    words
        .split(|word| *word == ",")
        .map(|words| match words {
            [name] if is_name(name) => Ok((*name).to_owned()),
            other => {
                Err(format!("`{}` is no name; it begins with a capital letter", other.join(" ")))
            }
        })
        .collect()
}

fn is_name(word: &str) -> bool {
    word.chars().next().is_some_and(|first| first.is_ascii_uppercase())
        && word.chars().all(|c| c.is_ascii_alphanumeric())
}

fn key_of(word: &str) -> Result<Key, String> {
    let key = Key::from(word);
    if key.split().is_none() {
        return Err(format!("`{word}` is not a partition such as t-0"));
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(text: &str) -> Action {
        text.parse::<Step>().unwrap().action
    }

    #[test]
    fn steps_are_read() {
        let (key, limit) = (Key::from("t-0"), Duration::from_secs(5));
        let named = |name: &str| vec![Who::Named(name.to_owned())];
        assert_eq!(
            action("send 10 to t-0 acks=1 within 5s"),
            Action::Send { count: 10, key: key.clone(), acks: Acks::Leader, limit, must: true }
        );
        assert_eq!(
            action("let L,F = leader of t-0, n2"),
            Action::Let(
                vec!["L".to_owned(), "F".to_owned()],
                vec![Who::Leader(key.clone()), Who::Node(NodeName::new(2))]
            )
        );
        assert_eq!(
            action("await hw of t-0 on F reaches 10 within 5s"),
            Action::Await(
                Condition::Reached(Mark::HighWatermark, key.clone(), named("F"), 10),
                limit
            )
        );
        assert_eq!(
            action("await leader of t-0 is not L"),
            Action::Await(Condition::LeaderIsNot(key, named("L")), DEFAULT_LIMIT)
        );
        assert_eq!(
            action("impair-one-way L from clients by loss=5% delay=20ms"),
            Action::Impair {
                from: named("L"),
                to: vec![Who::Clients],
                both: false,
                impairment: "delay=20ms loss=5%".parse().unwrap(),
                words: "L from clients by loss = 5% delay = 20ms".to_owned(),
            }
        );
        assert_eq!(
            action("cut L from controllers, clients"),
            Action::Cut {
                from: named("L"),
                to: vec![Who::Controllers, Who::Clients],
                both: true,
                words: "L from controllers , clients".to_owned()
            }
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, said) in [
            ("jump n1", "`jump` begins no step"),
            ("kill x9", "`x9` is no node"),
            ("kill clients", "clients can only be cut off"),
            ("kill n1,", "nodes are missing"),
            ("read t", "not a partition"),
            ("send ten to t-0", "not a number of sends"),
            ("kill n1 within 5s", "have a limit"),
            ("await it", "expected `leader of KEY"),
            ("await n1 answers within never", "`never`"),
        ] {
            let told = parse_steps(&format!("# why\n{text}")).unwrap_err();
            assert!(told.contains(said) && told.contains("line 2"), "{told}");
        }
        assert!(parse_steps("# nothing").is_err());
    }
}

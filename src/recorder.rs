//! The one writer of a run's history.
//!
//! Events get their index and time under one lock, in the order in which they are seen, and go
//! through a channel to a thread that writes them. What was recorded more than a second ago is
//! on its way to the disk, so that a driver killed at any moment leaves a readable history.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use history::{Draft, Event, Process, Record, Value};

/// Longest time an event waits in a buffer of ours.
const FLUSH_EVERY: Duration = Duration::from_millis(500);

/// Records events into `history.jsonl`, and the nemesis's also as text into `nemesis.log`.
pub(crate) struct Recorder {
    begun: Instant,
    state: Mutex<State>,
    trouble: Arc<OnceLock<String>>,
}

struct State {
    next_index: u64,
    /// None once the recorder was closed.
    events: Option<Sender<Event>>,
    writer: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Opens the files in `run_dir` and begins the run's clock.
    pub(crate) fn create(run_dir: &Path) -> io::Result<Self> {
        let history = File::create_new(run_dir.join("history.jsonl"))?;
        let nemesis = File::create_new(run_dir.join("nemesis.log"))?;
        let (events, queue) = channel();
        let trouble = Arc::new(OnceLock::new());
        let told = Arc::clone(&trouble);
        let writer = thread::Builder::new().name("recorder".into()).spawn(move || {
            let mut files = Files {
                history: BufWriter::with_capacity(1 << 18, history),
                nemesis: BufWriter::new(nemesis),
            };
            if let Err(error) = files.write_all(&queue) {
                let _ = told.set(format!("the history cannot be written: {error}"));
            }
        })?;
        Ok(Self {
            begun: Instant::now(),
            state: Mutex::new(State { next_index: 0, events: Some(events), writer: Some(writer) }),
            trouble,
        })
    }

    /// Why events are being lost, if they are: a full disk, for example.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.get().map(String::as_str)
    }

    /// Writes what is still on its way, and syncs it. Later events are dropped.
    pub(crate) fn close(&self) -> Result<(), String> {
        let writer = {
            let mut state = self.lock();
            state.events = None;
            state.writer.take()
        };
        if let Some(writer) = writer {
            writer.join().map_err(|_| "the recorder's thread panicked".to_owned())?;
        }
        self.trouble().map_or(Ok(()), |trouble| Err(trouble.to_owned()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record for Recorder {
    fn record(&self, body: Draft) -> u64 {
        let mut state = self.lock();
        let index = state.next_index;
        let event = Event { index, time_ns: self.now_ns(), body };
        if state.events.as_ref().is_some_and(|events| events.send(event).is_ok()) {
            state.next_index += 1;
        }
        index
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

struct Files {
    history: BufWriter<File>,
    nemesis: BufWriter<File>,
}

impl Files {
    fn write_all(&mut self, queue: &Receiver<Event>) -> io::Result<()> {
        let mut flushed = Instant::now();
        loop {
            match queue.recv_timeout(FLUSH_EVERY) {
                Ok(event) => self.write(&event)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if flushed.elapsed() >= FLUSH_EVERY {
                self.history.flush()?;
                flushed = Instant::now();
            }
        }
        self.history.flush()?;
        self.nemesis.flush()?;
        self.history.get_ref().sync_all()
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        serde_json::to_writer(&mut self.history, event)?;
        self.history.write_all(b"\n")?;
        if event.body.process == Process::Nemesis {
            #[expect(clippy::cast_precision_loss, reason = "shown with three decimals")]
            let seconds = event.time_ns as f64 / 1e9;
            let f = event.body.function.as_str();
            let value = match &event.body.value {
                Value::Json(json) => json.to_string(),
                other => serde_json::to_string(other)?,
            };
            writeln!(self.nemesis, "{seconds:10.3}s  line {}  {f}  {value}", event.index + 1)?;
            self.nemesis.flush()?;
        }
        Ok(())
    }
}

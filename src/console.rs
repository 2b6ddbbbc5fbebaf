//! The screen while a run goes on: log lines, and on a terminal a live panel below them.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use client::LiveStats;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use nemesis::ActiveFaults;
use tokio::sync::watch;
use tracing::info;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cli::{Format, OutputArgs};

/// How often the panel is drawn anew.
const REDRAW_EVERY: Duration = Duration::from_millis(250);
/// How often a line tells of progress where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// How many lagging keys the panel names.
const LAGGING_SHOWN: usize = 3;

/// The screen.
#[derive(Clone, Debug)]
pub(crate) struct Console {
    panel: Option<MultiProgress>,
    quiet: bool,
    log: DriverLog,
}

/// The file that the log goes to, where there is one.
#[derive(Clone, Debug, Default)]
struct DriverLog(Arc<Mutex<Option<File>>>);

impl Write for DriverLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(file) => file.write(bytes),
            None => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for DriverLog {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// What is going on, for the panel.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    /// Of operations.
    pub(crate) live: Arc<LiveStats>,
    /// Of the nemesis.
    pub(crate) faults: Arc<ActiveFaults>,
    /// The phase's name.
    pub(crate) phase: watch::Receiver<&'static str>,
}

impl Console {
    /// Begins to log to the screen, and to `driver.log` in `run_dir` where there is one, until
    /// [`Console::log_into`] says otherwise.
    pub(crate) fn begin(output: &OutputArgs, run_dir: Option<&Path>) -> io::Result<Self> {
        let on_terminal = io::stderr().is_terminal();
        let panel = (on_terminal && !output.quiet && output.format == Format::Human)
            .then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10)));
        let level = match (output.quiet, output.verbose) {
            (true, _) => LevelFilter::ERROR,
            (false, 0) => LevelFilter::INFO,
            (false, 1) => LevelFilter::DEBUG,
            (false, _) => LevelFilter::TRACE,
        };
        // librdkafka tells of every lost connection, and losing them is what a run is about.
        let librdkafka = if output.verbose == 0 { LevelFilter::OFF } else { level };
        let screen = tracing_subscriber::fmt::layer()
            .with_writer(Above(panel.clone()))
            .with_ansi(on_terminal)
            .with_target(false)
            .with_timer(tracing_subscriber::fmt::time::uptime())
            .with_filter(targets(level).with_target("librdkafka", librdkafka));
        let log = DriverLog::default();
        let file = tracing_subscriber::fmt::layer()
            .with_writer(log.clone())
            .with_ansi(false)
            .with_filter(targets(LevelFilter::DEBUG));
        // A second call in one process (tests) keeps the first one's outputs.
        let _ = tracing_subscriber::registry().with(screen).with(file).try_init();
        let console = Self { panel, quiet: output.quiet, log };
        if let Some(dir) = run_dir {
            console.log_into(dir)?;
        }
        Ok(console)
    }

    /// From now on the log goes to `driver.log` in `dir`.
    pub(crate) fn log_into(&self, dir: &Path) -> io::Result<()> {
        let file = OpenOptions::new().create(true).append(true).open(dir.join("driver.log"))?;
        *self.log.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        Ok(())
    }

    /// Shows progress until dropped.
    pub(crate) fn watch(&self, watched: Watched) -> Progress {
        let panel = self.panel.clone();
        let quiet = self.quiet;
        let task = tokio::spawn(async move {
            match panel {
                Some(panel) => draw(&panel, &watched).await,
                None if quiet => {}
                None => tell(&watched).await,
            }
        });
        Progress { task, panel: self.panel.clone() }
    }

    /// Prints a result on standard output, clear of the panel.
    pub(crate) fn print(&self, text: &str) {
        let write = || {
            // Whoever closed our output does not want to read on.
            let _ = writeln!(io::stdout().lock(), "{}", text.trim_end());
        };
        match &self.panel {
            Some(panel) => panel.suspend(write),
            None => write(),
        }
    }
}

/// Ends the panel when dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    task: tokio::task::JoinHandle<()>,
    panel: Option<MultiProgress>,
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(panel) = &self.panel {
            let _ = panel.clear();
        }
    }
}

async fn draw(panel: &MultiProgress, watched: &Watched) {
    let bar = panel.add(ProgressBar::new_spinner());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    let begun = Instant::now();
    let mut rates = Rates::default();
    let mut ticks = tokio::time::interval(REDRAW_EVERY);
    loop {
        ticks.tick().await;
        bar.set_message(describe(watched, begun.elapsed(), &mut rates).join("\n  "));
        bar.tick();
    }
}

async fn tell(watched: &Watched) {
    let begun = Instant::now();
    let mut rates = Rates::default();
    let mut ticks = tokio::time::interval(LINE_EVERY);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        info!("{}", describe(watched, begun.elapsed(), &mut rates).join("; "));
    }
}

/// Counts at the last look, to tell rates.
#[derive(Debug, Default)]
struct Rates {
    at: Duration,
    counts: [u64; 3],
    shown: [f64; 3],
}

impl Rates {
    fn update(&mut self, now: Duration, counts: [u64; 3]) -> [f64; 3] {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        // Over a second or so, or the numbers flicker.
        if passed >= 1.0 {
            for (shown, (new, old)) in self.shown.iter_mut().zip(counts.iter().zip(self.counts)) {
                *shown = new.saturating_sub(old) as f64 / passed;
            }
            self.at = now;
            self.counts = counts;
        }
        self.shown
    }
}

fn describe(watched: &Watched, elapsed: Duration, rates: &mut Rates) -> Vec<String> {
    let live = &watched.live;
    let sum = |pick: fn(&client::Counts) -> u64| pick(&live.send) + pick(&live.poll);
    let counts = [
        sum(|counts| counts.ok.load(Relaxed)),
        sum(|counts| counts.fail.load(Relaxed)),
        sum(|counts| counts.info.load(Relaxed)),
    ];
    let [ok, fail, info] = rates.update(elapsed, counts);
    let mut lines = vec![format!(
        "{} {:.0} s: ok {ok:.0}/s, fail {fail:.0}/s, info {info:.0}/s; {} sends outstanding",
        *watched.phase.borrow(),
        elapsed.as_secs_f64(),
        live.outstanding.load(Relaxed)
    )];
    let faults = watched.faults.list();
    if !faults.is_empty() {
        lines.push(format!("faults: {}", faults.join(", ")));
    }
    let mut lags: Vec<(i64, String)> = live
        .keys()
        .iter()
        .map(|key| {
            let lag = key.acked_end.load(Relaxed) - key.read_end.load(Relaxed);
            (lag, key.key.to_string())
        })
        .filter(|(lag, _)| *lag > 1000)
        .collect();
    lags.sort_by_key(|(lag, _)| std::cmp::Reverse(*lag));
    if !lags.is_empty() {
        let worst: Vec<String> =
            lags.iter().take(LAGGING_SHOWN).map(|(lag, key)| format!("{key} by {lag}")).collect();
        lines.push(format!("consumers behind on {} keys: {}", lags.len(), worst.join(", ")));
    }
    lines
}

fn targets(level: LevelFilter) -> Targets {
    // Libraries below us speak only when something is wrong.
    let ours = [
        "highwater",
        "checkers",
        "client",
        "cluster",
        "nemesis",
        "scenario",
        "workloads",
        "librdkafka",
    ];
    Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_targets(ours.map(|target| (target, level)))
}

/// Writes log lines to standard error, above the panel.
#[derive(Clone, Debug)]
struct Above(Option<MultiProgress>);

impl Write for Above {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match &self.0 {
            Some(panel) => panel.suspend(|| io::stderr().write(buffer)),
            None => io::stderr().write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl<'a> MakeWriter<'a> for Above {
    type Writer = Self;

    fn make_writer(&'a self) -> Self::Writer {
        self.clone()
    }
}

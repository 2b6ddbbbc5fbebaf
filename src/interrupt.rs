//! What a signal means: the first asks for an early end with a verdict, the second for an end at
//! once.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::warn;

/// Watches for SIGINT, SIGTERM and SIGHUP.
#[derive(Clone, Debug)]
pub(crate) struct Interrupts {
    /// True from the first signal on: heal, read everything back, judge.
    pub(crate) stop: watch::Receiver<bool>,
    /// True from the second on: end now, keep the history.
    pub(crate) abort: watch::Receiver<bool>,
}

impl Interrupts {
    /// Begins to watch. To be called inside a tokio runtime.
    pub(crate) fn watch() -> std::io::Result<Self> {
        let mut signals = [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ];
        let (stop_sender, stop) = watch::channel(false);
        let (abort_sender, abort) = watch::channel(false);
        tokio::spawn(async move {
            let [interrupt, terminate, hangup] = &mut signals;
            let mut seen = 0_u32;
            loop {
                let alive = tokio::select! {
                    biased;
                    signal = interrupt.recv() => signal,
                    signal = terminate.recv() => signal,
                    signal = hangup.recv() => signal,
                };
                if alive.is_none() {
                    return;
                }
                seen += 1;
                if seen == 1 {
                    warn!(
                        "interrupted: healing, reading back and judging what there is; once more to stop at once"
                    );
                    stop_sender.send_replace(true);
                } else {
                    warn!("interrupted again: stopping at once, the history is kept");
                    abort_sender.send_replace(true);
                }
            }
        });
        Ok(Self { stop, abort })
    }

    /// Waits until an end at once is asked for.
    pub(crate) async fn aborted(&self) {
        let mut abort = self.abort.clone();
        if abort.wait_for(|aborted| *aborted).await.is_err() {
            // The watcher is gone, so nobody can ask any more.
            std::future::pending::<()>().await;
        }
    }
}

//! Producer ids, from blocks that the controller gives.

use std::sync::Arc;

use async_trait::async_trait;
use thiserror::Error;
use tokio::sync::Mutex;

/// Where blocks come from.
#[async_trait]
pub trait Blocks: Send + Sync + 'static {
    /// The next block: its first id, and how many there are.
    ///
    /// # Errors
    /// Why there is none now.
    async fn next(&self) -> Result<(i64, i64), NoBlock>;
}

/// There is no block now.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no block of producer ids: {0}")]
pub struct NoBlock(pub String);

/// Gives ids away, each once.
pub struct ProducerIds {
    blocks: Arc<dyn Blocks>,
    /// The next id, and the first that is not in the block. Held while a block is asked for, so
    /// that one is asked for at a time.
    left: Mutex<(i64, i64)>,
}

impl std::fmt::Debug for ProducerIds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProducerIds")
    }
}

impl ProducerIds {
    /// Ids from `blocks`.
    pub fn new(blocks: Arc<dyn Blocks>) -> Self {
        Self { blocks, left: Mutex::new((0, 0)) }
    }

    /// An id that nobody has.
    ///
    /// # Errors
    /// [`NoBlock`].
    pub async fn next(&self) -> Result<i64, NoBlock> {
        let mut left = self.left.lock().await;
        if left.0 == left.1 {
            let (first, count) = self.blocks.next().await?;
            *left = (first, first + count);
        }
        let id = left.0;
        left.0 += 1;
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    #[derive(Default)]
    struct TwoEach(AtomicI64);

    #[async_trait]
    impl Blocks for TwoEach {
        async fn next(&self) -> Result<(i64, i64), NoBlock> {
            match self.0.fetch_add(1, Ordering::Relaxed) {
                2 => Err(NoBlock("the controller is away".to_owned())),
                block => Ok((block * 10, 2)),
            }
        }
    }

    #[tokio::test]
    async fn ids_come_block_by_block_and_an_error_is_passed_on() {
        let ids = ProducerIds::new(Arc::new(TwoEach::default()));
        let mut given = Vec::new();
        for _ in 0..4 {
            given.push(ids.next().await.unwrap());
        }
        assert_eq!(given, [0, 1, 10, 11]);
        assert!(ids.next().await.is_err());
        assert_eq!(ids.next().await, Ok(30));
    }
}

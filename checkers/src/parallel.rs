//! Work shared by the threads of a small machine.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// How many threads work side by side.
const THREADS: usize = 2;

/// `work` on each item, on several threads; results in the order of the items. A panic of `work`
/// goes on in the caller.
pub(crate) fn map_parallel<T: Send, R: Send>(
    items: Vec<T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let items: Vec<_> = items.into_iter().map(|item| std::sync::Mutex::new(Some(item))).collect();
    let next = AtomicUsize::new(0);
    let share = || {
        let mut done = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = items.get(place) else {
                return done;
            };
            let item = slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            done.extend(item.map(|item| (place, work(item))));
        }
    };
    let mut done = thread::scope(|scope| {
        let others: Vec<_> = (1..THREADS).map(|_| scope.spawn(share)).collect();
        let mut done = share();
        for other in others {
            match other.join() {
                Ok(more) => done.extend(more),
                Err(panic) => resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::map_parallel;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let doubled = map_parallel((0..1000).collect(), |n: u32| n * 2);
        assert_eq!(doubled, (0..1000).map(|n| n * 2).collect::<Vec<_>>());
        assert!(map_parallel(Vec::<u32>::new(), |n| n).is_empty());
    }
}

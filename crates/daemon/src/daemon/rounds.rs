//! The comparisons of all channels (`[channel.verify]`): a task for each, for as long as it is in the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::process::Daemon;
use crate::channel::Supervisor;

/// Channels that are compared at the same time.
const AT_ONCE: usize = 2;
/// Between two looks at the configuration's channels.
const LOOK: Duration = Duration::from_secs(1);

/// Compares until stopped. Returns once no comparison is left, so that all have begun to end their queries.
pub(crate) async fn keep(daemon: Arc<Daemon>, stop: CancellationToken) {
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let mut tasks: BTreeMap<String, (Arc<Supervisor>, AbortOnDropHandle<()>)> = BTreeMap::new();
    while !stop.is_cancelled() {
        let channels = daemon.channels();
        // One of the same name may be another one.
        tasks.retain(|_, (known, _)| channels.iter().any(|channel| Arc::ptr_eq(channel, known)));
        for channel in channels {
            let name = channel.name().to_owned();
            let (compared, permits) = (Arc::clone(&channel), Arc::clone(&permits));
            tasks.entry(name).or_insert_with(|| {
                let task = tokio::spawn(async move { compared.keep_compared(&permits).await });
                (channel, AbortOnDropHandle::new(task))
            });
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = stop.cancelled() => {}
        }
    }
    tasks.values().for_each(|(_, task)| task.abort());
    for (_, task) in tasks.into_values() {
        // It ends because it was aborted.
        let _ = task.await;
    }
}

//! Archives and relay stores without room.

use super::*;

/// Returns a world whose archive keeps its newest file only, in a store without faults.
async fn world() -> World {
    let mut world = World::new(1);
    *world.store.faults.lock() = 0;
    world.options.keep = Some(Duration::from_micros(1));
    // One transaction each.
    world.options.file_size = 500;
    // No gap makes it easier.
    world.options.is_required = true;
    // Commits of the future: the time of writing decides.
    world.origin = SystemClock.now_micros() + 3_600_000_000;
    world.receive_format().await;
    world
}

/// Gives the store room for so many objects more.
async fn fill(store: &FaultyStore, room: usize) {
    let objects = store.inner.list(None).count().await;
    *store.room.lock() = Some(objects + room);
}

#[test]
fn a_full_archive_is_swept_before_a_file_is_added() {
    runtime().block_on(async {
        let mut world = world().await;
        world.upload();
        for gno in 1..=4 {
            world.receive(gno, 700).await;
        }
        world.archived(&up_to(4)).await;
        fill(&world.store, 0).await;
        for gno in 5..=8 {
            world.receive(gno, 700).await;
        }
        world.archived(&up_to(8)).await;
    });
}

/// Neither the mark of the history fits, or the mark and no file.
#[test]
fn a_full_archive_is_swept_before_another_history_has_a_file() {
    for room in [0, 1] {
        runtime().block_on(async {
            let mut earlier = world().await;
            earlier.upload();
            for gno in 1..=4 {
                earlier.receive(gno, 700).await;
            }
            earlier.archived(&up_to(4)).await;
            earlier.uploaders.iter().for_each(JoinHandle::abort);
            fill(&earlier.store, room).await;
            let mut world = world().await;
            world.store = Arc::clone(&earlier.store);
            // It was set back.
            world.executed.subtract(&up_to(4));
            world.upload();
            for gno in 5..=8 {
                world.receive(gno, 700).await;
            }
            let mut expected = up_to(8);
            expected.subtract(&up_to(4));
            world.archived(&expected).await;
        });
    }
}

/// Some of the relay stores are full long before a file has its size or its age.
#[test]
fn reception_does_not_wait_until_a_file_is_old() {
    for seed in 1..=20 {
        runtime().block_on(async {
            let mut world = World::new(seed);
            *world.store.faults.lock() = 0;
            world.options.interval = Duration::from_secs(86_400);
            world.options.file_size = 1 << 20;
            world.options.is_required = true;
            world.receive_format().await;
            let committing = world.commit();
            world.upload();
            let begun = Instant::now();
            for gno in 1..=TRANSACTIONS {
                world.receive(gno, 700).await;
            }
            world.inlet.stored().await;
            committing.abort();
            let took = begun.elapsed();
            assert!(took < Duration::from_secs(600), "seed {seed}: {took:?}");
        });
    }
}

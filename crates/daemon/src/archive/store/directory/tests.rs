use std::sync::Arc;
use std::time::Duration;

use object_store::buffered::BufWriter;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use super::*;
use crate::archive::store::{Archive, ArchiveError, ArchiveLocation};

fn location(directory: &std::path::Path) -> ArchiveLocation {
    let url = format!("file://{}", directory.display());
    ArchiveLocation { url, ..ArchiveLocation::default() }
}

#[tokio::test]
async fn a_directory_that_is_missing_is_away_until_it_is_there() {
    let place = TempDir::new().expect("a directory");
    let directory = place.path().join("mount/mysql");
    let location = location(&directory);
    location.check().expect("nothing is wrong with the configuration");
    let archive = Archive::open(&location, "shop").expect("nothing is asked yet");
    let error = archive.histories().await.expect_err("it is missing");
    assert!(matches!(error, ArchiveError::Away { .. }), "{error}");
    let said = error.to_string();
    let path = directory.display().to_string();
    assert!(said.contains(&path) && said.contains("is the directory mounted"), "{said}");
    assert!(!said.contains("Generic"), "{said}");
    let mut writer = archive.history("one").writer("file", 0);
    assert!(writer.write_all(b"x").await.is_err() || writer.shutdown().await.is_err());
    assert!(!place.path().join("mount").exists(), "nothing is created in the place of a mount");
    std::fs::create_dir_all(&directory).expect("created");
    assert!(archive.histories().await.expect("there").is_empty());
}

#[tokio::test]
async fn a_directory_keeps_what_is_written() {
    let place = TempDir::new().expect("a directory");
    let store = Arc::new(DirectoryStore::new(place.path().to_owned()));
    let large: Vec<u8> = (0..100_000_usize).map(|at| (at / 1000) as u8).collect();
    for (name, bytes) in [("a/large", large.as_slice()), ("a/small", b"small")] {
        // More than a part is written in several requests.
        let writer = Arc::clone(&store) as Arc<dyn ObjectStore>;
        let mut writer = BufWriter::with_capacity(writer, Path::from(name), 30_000);
        writer.put(bytes.to_vec().into()).await.expect("taken");
        writer.shutdown().await.expect("written");
        let path = Path::from(name);
        let read = store.get(&path).await.expect("there").bytes().await.expect("read");
        assert!(read == bytes, "{name}");
        assert_eq!(store.head(&path).await.expect("there").size, bytes.len() as u64);
    }
    let range = store.get_range(&Path::from("a/large"), 5_000..5_010).await.expect("read");
    assert_eq!(&range[..], [5; 10]);
    let names = async || {
        let listed = store.list(Some(&Path::from("a"))).try_collect::<Vec<_>>().await;
        let mut names: Vec<_> =
            listed.expect("listed").into_iter().map(|object| object.location.to_string()).collect();
        names.sort();
        names
    };
    assert_eq!(names().await, ["a/large", "a/small"]);
    store.delete(&Path::from("a/large")).await.expect("deleted");
    let gone = store.get(&Path::from("a/large")).await.expect_err("deleted");
    assert!(matches!(gone, object_store::Error::NotFound { .. }), "{gone}");
    assert_eq!(names().await, ["a/small"]);
}

#[tokio::test]
async fn a_file_that_is_not_ended_leaves_nothing() {
    let place = TempDir::new().expect("a directory");
    let store = DirectoryStore::new(place.path().to_owned());
    let path = Path::from("file");
    let mut aborted = store.put_multipart(&path).await.expect("begun");
    aborted.put_part(vec![1; 10].into()).await.expect("written");
    aborted.abort().await.expect("aborted");
    let mut dropped = store.put_multipart(&path).await.expect("begun");
    dropped.put_part(vec![1; 10].into()).await.expect("written");
    drop(dropped);
    store.requests.returned().await.expect("it is closed");
    let is_empty = || std::fs::read_dir(place.path()).expect("readable").next().is_none();
    // The library removes the file of the second one later.
    for _ in 0..1000 {
        if is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(is_empty());
}

#[tokio::test]
async fn a_file_whose_end_fails_leaves_nothing() {
    let place = TempDir::new().expect("a directory");
    let store = DirectoryStore::new(place.path().to_owned());
    let mut upload = store.put_multipart(&Path::from("file")).await.expect("begun");
    upload.put_part(vec![1; 10].into()).await.expect("written");
    assert!(place.path().join("file#1").exists(), "the library has another name for it");
    // In its place is something that no file replaces.
    std::fs::create_dir(place.path().join("file")).expect("created");
    upload.complete().await.expect_err("it can't get its name");
    let names: Vec<_> = std::fs::read_dir(place.path()).expect("readable").flatten().collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[tokio::test]
async fn what_a_killed_daemon_has_left_is_deleted() {
    let place = TempDir::new().expect("a directory");
    let archive = Archive::open(&location(place.path()), "shop").expect("nothing is asked yet");
    let history = archive.history("one");
    assert_eq!(history.remove_unfinished(7).await.expect("no folder"), 0);
    let folder = place.path().join("shop/one");
    std::fs::create_dir_all(&folder).expect("created");
    let left = folder.join("00000006-00000001.binlog#1");
    std::fs::write(&left, "a part").expect("written");
    assert_eq!(history.remove_unfinished(6).await.expect("it answers"), 0, "being written");
    assert_eq!(history.remove_unfinished(7).await.expect("it answers"), 1);
    assert!(!left.exists());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_hangs_holds_back_the_next_ones() {
    let requests = Requests::default();
    let (finish, hangs) = oneshot::channel::<()>();
    let hanging = requests.make(async move {
        drop(hangs.await);
        Ok(())
    });
    assert!(tokio::time::timeout(Duration::from_secs(30), hanging).await.is_err());
    assert_eq!(requests.abandoned.len(), 1);
    for _ in 0..3 {
        let next = requests.make(async { Ok(()) }).await.expect_err("held back");
        assert!(next.to_string().contains("an earlier request"), "{next}");
    }
    assert_eq!(requests.abandoned.len(), 1, "those that are held back have not begun");
    finish.send(()).expect("somebody waits");
    assert_eq!(requests.make(async { Ok(7) }).await.expect("free"), 7);
    assert_eq!(requests.abandoned.len(), 0);
}

#[test]
fn a_directory_is_the_same_one_after_a_reload() {
    let of = |path: &str| Requests::of(std::path::Path::new(path)).abandoned;
    assert!(TaskTracker::ptr_eq(&of("/archive/one"), &of("/archive/one")));
    assert!(!TaskTracker::ptr_eq(&of("/archive/one"), &of("/archive/other")));
}

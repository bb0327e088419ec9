use object_store::memory::InMemory;

use super::*;
use crate::archive::index::tests::index;

fn archive() -> (Arc<InMemory>, ArchivedHistory) {
    let store = Arc::new(InMemory::new());
    let archive = Archive::over(Arc::clone(&store) as Arc<dyn ObjectStore>, "shop");
    let history = archive.history("20261126T081500Z-1f8a22c4");
    (store, history)
}

#[tokio::test]
async fn a_file_is_read_in_requests_that_a_slow_link_answers_in_time() {
    let (store, history) = archive();
    let bytes: Vec<u8> = (0..2 * PART + 1000).map(|at| (at / 1000) as u8).collect();
    store.put(&history.folder().join("file"), bytes.clone().into()).await.expect("written");
    let parts = history.read("file").await.expect("there").try_collect::<Vec<Bytes>>().await;
    let parts = parts.expect("read");
    assert_eq!(parts.iter().map(Bytes::len).collect::<Vec<_>>(), [PART, PART, 1000]);
    assert!(parts.concat() == bytes);
    let missing = history.read("other").await.err().expect("missing").to_string();
    assert!(missing.contains("other is missing"), "{missing}");
}

#[tokio::test]
async fn an_own_request_that_was_carried_out_late_is_no_other_daemon() {
    let (_, history) = archive();
    let late = index(3, "", "");
    history.publish(&late).await.expect("published");
    history.publish(&late).await.expect("the same again");
    let later = FileIndex { file: "00000003-00000007.binlog".to_owned(), ..late.clone() };
    let error = history.publish(&later).await.expect_err("there is one");
    assert!(matches!(error, ArchiveError::Away { .. }), "{error}");
    let other = FileIndex { writer: "another".to_owned(), ..later };
    let error = history.publish(&other).await.expect_err("there is one");
    assert!(matches!(error, ArchiveError::Overtaken { number: 3, .. }), "{error}");
    assert_eq!(history.index(3).await.expect("readable"), Some(late));
}

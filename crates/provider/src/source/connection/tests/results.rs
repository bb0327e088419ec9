//! Statements of a session: results in a row, errors between them, packets of any length.

use super::*;
use crate::server::link::{Budget, Outcome, Purpose, RowPart};
use crate::source::connection::fake_source::{COM_QUERY, PACKET_BYTES_FULL};

const MORE: u8 = 0x08;

/// Returns a session with a script that answers its commands.
async fn session<S>(script: impl FnOnce(FakeSource) -> S + Send + 'static) -> (Link, JoinHandle<()>)
where
    S: Future<Output = ()> + Send,
{
    let (client, source) = tokio::io::duplex(BUFFER_BYTES);
    let script = tokio::spawn(async move {
        let mut source = FakeSource::new(source);
        source.accept_login().await;
        script(source).await;
    });
    let mut options = options().link("source", 0);
    options.purpose = Purpose::Statements;
    let link = Link::login(Box::new(client), &options, None).await.expect("logs in");
    (link, script)
}

/// Affected rows and warnings of each result, with the values of its rows, up to the first error.
async fn run(
    link: &mut Link,
    statements: &[u8],
) -> (Vec<(u64, u16, Vec<String>)>, Option<LinkError>) {
    let mut budget = Budget::new(Limits::LIST, "statements");
    let mut results = Vec::new();
    if let Err(error) = link.begin(statements).await {
        return (results, Some(error));
    }
    loop {
        let mut rows = Vec::new();
        let next = link.next_result(&mut budget, |row: Row| {
            let values = texts(row).into_iter();
            rows.push(values.map(|value| value.unwrap_or("NULL".to_owned())).collect());
        });
        match next.await {
            Ok(Some(Outcome { affected_rows, warnings, .. })) => {
                results.push((affected_rows, warnings, rows));
            }
            Ok(None) => return (results, None),
            Err(error) => return (results, Some(error)),
        }
    }
}

#[tokio::test]
async fn results_come_in_order_with_rows_between_them() {
    let (mut link, script) = session(async |mut source| {
        assert_eq!(source.command().await, [&[COM_QUERY][..], b"a;b;c"].concat());
        source.send(&[0, 3, 0, MORE, 0, 1, 0]).await;
        source.columns(2).await;
        source.send(b"\x01x\xfb").await;
        source.send(b"\x00\x02yz").await;
        source.send(&[0xfe, 0, 0, MORE, 0, 2, 0]).await;
        source.send(&[0, 0xfc, 0x10, 0x27, 0, 0, 0, 0, 0]).await;
        assert_eq!(source.command().await[1..], *b"d");
        source.ok().await;
    })
    .await;
    let rows = vec!["xNULL".to_owned(), "yz".to_owned()];
    let (results, error) = run(&mut link, b"a;b;c").await;
    assert_eq!(results, [(3, 1, Vec::new()), (0, 2, rows), (10_000, 0, Vec::new())]);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(run(&mut link, b"d").await.0.len(), 1);
    script.await.expect("the script");
}

/// The link is usable after it; no results of the statements that follow are expected.
#[tokio::test]
async fn an_error_between_results_ends_them() {
    let (mut link, script) = session(async |mut source| {
        for rows_first in [false, true] {
            source.command().await;
            source.send(&[0, 1, 0, MORE, 0, 0, 0]).await;
            if rows_first {
                source.columns(1).await;
                source.send(b"\x01x").await;
            }
            source.error(1213, "Deadlock").await;
        }
        source.command().await;
        source.ok().await;
    })
    .await;
    for _ in 0..2 {
        let (results, error) = run(&mut link, b"a;b").await;
        assert_eq!(results.len(), 1);
        assert_eq!(error.and_then(|error| error.code()), Some(1213));
    }
    assert!(run(&mut link, b"c").await.1.is_none());
    script.await.expect("the script");
}

/// A link with an answer half read would take the rest for the answer to the next query.
#[tokio::test]
async fn a_question_given_up_ends_the_link() {
    let (mut link, script) = session(async |mut source| {
        source.command().await;
        tokio::time::sleep(PATIENCE).await;
    })
    .await;
    let asked = link.query::<String>("SELECT SLEEP(9)", Limits::SETTING);
    tokio::time::timeout(Duration::from_millis(50), asked).await.expect_err("no answer");
    let next = link.query::<String>("SELECT 1", Limits::SETTING).await;
    assert!(matches!(next, Err(LinkError::OutOfStep)), "{next:?}");
    script.abort();
}

#[tokio::test]
async fn statements_of_any_length_are_cut_into_packets() {
    for len in [PACKET_BYTES_FULL - 2, PACKET_BYTES_FULL - 1, PACKET_BYTES_FULL, 40 << 20] {
        let (mut link, script) = session(async move |mut source| {
            let mut received = source.command().await;
            let mut last = received.len();
            while last == PACKET_BYTES_FULL {
                let part = source.receive().await;
                last = part.len();
                received.extend(part);
            }
            assert_eq!(received.len(), len + 1);
            assert!(received[1..].iter().enumerate().all(|(at, &byte)| byte == at as u8));
            source.ok().await;
        })
        .await;
        let text: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let (results, error) = run(&mut link, &text).await;
        assert_eq!(results.len(), 1, "{len}: {error:?}");
        script.await.expect("the script");
    }
}

#[tokio::test]
async fn long_values_come_in_several_packets() {
    let (mut link, script) = session(async |mut source| {
        source.command().await;
        source.columns(1).await;
        let mut row = vec![0xfe];
        row.extend_from_slice(&(40_u64 << 20).to_le_bytes());
        row.resize(9 + (40 << 20), b'v');
        source.send(&row).await;
        source.send(&[0xfe, 0, 0, 2, 0, 0, 0]).await;
    })
    .await;
    let rows: Vec<Vec<u8>> = link.query("SELECT v", Limits::LIST).await.expect("a row");
    assert_eq!(rows[0].len(), 40 << 20);
    script.await.expect("the script");
}

#[tokio::test]
async fn rows_of_another_kind_are_an_error_that_names_no_value() {
    let (mut link, script) = session(async |mut source| {
        for _ in 0..2 {
            source.command().await;
            source.value("secret").await;
        }
    })
    .await;
    let error = link.query::<u64>("SELECT v", Limits::LIST).await.expect_err("no number");
    let text = error.to_string();
    assert!(text.contains("SELECT v") && !text.contains("secret"), "{text}");
    let rows = link.query::<(String,)>("SELECT v", Limits::LIST).await.expect("text");
    assert_eq!(rows, [("secret".to_owned(),)]);
    script.await.expect("the script");
}

/// The values of the next rows, and whether more may follow.
async fn next(
    link: &mut Link,
    rows: usize,
    bytes: usize,
) -> Result<(Vec<String>, bool), LinkError> {
    let next = link.next_rows(RowPart { rows, bytes }).await?;
    let values = next.rows.into_iter().flat_map(texts).flatten();
    Ok((values.collect(), next.has_more))
}

#[tokio::test]
async fn a_result_is_read_in_parts_of_rows_or_bytes() {
    let (mut link, script) = session(async |mut source| {
        assert_eq!(source.command().await[1..], *b"a");
        source.columns(1).await;
        for row in [&b"\x01a"[..], b"\x02bb", b"\x03ccc", b"\x01d"] {
            source.send(row).await;
        }
        source.send(&[0xfe, 0, 0, 0, 0, 0, 0]).await;
        assert_eq!(source.command().await[1..], *b"b");
        source.columns(1).await;
        source.send(b"\x01a").await;
        source.error(1317, "Query execution was interrupted").await;
        assert_eq!(source.command().await[1..], *b"c");
        source.ok().await;
    })
    .await;
    let text = |texts: &[&str]| -> Vec<String> { texts.iter().map(|&text| text.into()).collect() };
    link.begin(b"a").await.expect("sent");
    assert_eq!(next(&mut link, 2, 1000).await.expect("rows"), (text(&["a", "bb"]), true));
    assert!(matches!(link.begin(b"x").await, Err(LinkError::OutOfStep)));
    assert_eq!(next(&mut link, 2, 1).await.expect("rows"), (text(&["ccc"]), true));
    assert_eq!(next(&mut link, 1, 1000).await.expect("rows"), (text(&["d"]), true));
    assert_eq!(next(&mut link, 1, 1000).await.expect("an end"), (text(&[]), false));
    assert!(matches!(next(&mut link, 1, 1).await, Err(LinkError::OutOfStep)));
    link.begin(b"b").await.expect("sent");
    assert_eq!(next(&mut link, 1, 1000).await.expect("rows"), (text(&["a"]), true));
    let error = next(&mut link, 1, 1000).await.expect_err("an error");
    assert_eq!(error.code(), Some(1317));
    assert_eq!(run(&mut link, b"c").await.0.len(), 1);
    script.await.expect("done");
}

/// A copy reads rows that are longer than those of any list.
#[tokio::test]
async fn a_row_that_is_read_in_a_part_may_be_as_long_as_the_protocol_permits() {
    const LENGTH: usize = 65 << 20;
    let (mut link, script) = session(async |mut source| {
        source.command().await;
        source.columns(1).await;
        let mut row = vec![0xfe];
        row.extend_from_slice(&(LENGTH as u64).to_le_bytes());
        row.resize(9 + LENGTH, b'v');
        source.send(&row).await;
        source.send(&[0xfe, 0, 0, 2, 0, 0, 0]).await;
    })
    .await;
    link.begin(b"SELECT v").await.expect("sent");
    let (values, has_more) = next(&mut link, 10, 1).await.expect("a row");
    assert!(has_more && values.len() == 1 && values[0].len() == LENGTH);
    assert!(!next(&mut link, 10, 1).await.expect("an end").1);
    script.await.expect("the script");
}

#[tokio::test]
async fn a_server_takes_one_statement_in_a_packet_where_that_is_said() {
    const COM_SET_OPTION: u8 = 27;
    let (mut link, script) = session(async |mut source| {
        assert_eq!(source.command().await, [COM_SET_OPTION, 1, 0]);
        source.send(&[0xfe, 0, 0, 2, 0, 0, 0]).await;
        assert_eq!(source.command().await[1..], *b"a;b");
        source.error(1064, "You have an error in your SQL syntax").await;
        assert_eq!(source.command().await, [COM_SET_OPTION, 0, 0]);
        source.send(&[0xfe, 0, 0, 2, 0]).await;
        source.command().await;
        source.error(1047, "Unknown command").await;
        source.command().await;
        source.ok().await;
    })
    .await;
    link.take_several(false).await.expect("known");
    let error = run(&mut link, b"a;b").await.1.expect("refused");
    assert_eq!(error.code(), Some(1064));
    link.take_several(true).await.expect("known");
    let error = link.take_several(false).await.expect_err("unknown");
    assert_eq!(error.code(), Some(1047));
    assert!(run(&mut link, b"c").await.1.is_none());
    script.await.expect("the script");
}

#[tokio::test]
async fn a_farewell_that_crosses_a_command_is_shown() {
    let (mut link, script) = session(async |mut source| {
        source.command().await;
        let text = b"\xff\xbf\x0f#HY000The client was disconnected by the server";
        let header = [text.len() as u8, 0, 0, 0];
        source.send_bytes(&[&header[..], text].concat()).await;
    })
    .await;
    let (_, error) = run(&mut link, b"a").await;
    let text = error.expect("an error").to_string();
    let expected =
        "the server has ended the session: error 4031: The client was disconnected by the server";
    assert_eq!(text, expected);
    script.await.expect("done");
}

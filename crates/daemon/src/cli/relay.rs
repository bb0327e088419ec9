//! `relay ls` and `relay dump`.

use super::arguments::Relay;
use super::client::{Client, read};
use super::output::{print, say};
use super::table;
use crate::host::{Failure, counted};
use crate::observe::relay_dump::Line;
use crate::observe::view::{SegmentView, SegmentsView};

pub(super) fn look(client: &Client, command: &Relay) -> Result<(), Failure> {
    let channel = client.channel()?;
    match command {
        Relay::Ls => {
            let segments: SegmentsView = client.get(&format!("/channels/{channel}/relay"))?;
            print(&list(&segments.segments))?;
            Ok(())
        }
        Relay::Dump { gtid_set, limit, rows } => {
            let mut path =
                format!("/channels/{channel}/relay/transactions?limit={limit}&rows={rows}");
            if let Some(set) = gtid_set {
                path.push_str("&gtid_set=");
                path.extend(form_urlencoded::byte_serialize(set.as_bytes()));
            }
            dump(client, &path)
        }
    }
}

fn list(segments: &[SegmentView]) -> String {
    let head = ["SEGMENT", "BYTES", "TRANSACTIONS", "EVENT BYTES", "GTIDS"];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(segments.iter().map(|segment| {
        [
            segment.segment.to_string(),
            segment.bytes.to_string(),
            segment.transactions.to_string(),
            segment.event_bytes.to_string(),
            segment.gtid_set.clone(),
        ]
    }));
    table::columns(&rows)
}

fn dump(client: &Client, path: &str) -> Result<(), Failure> {
    let mut ended = None;
    client.get_lines(path, |text| {
        let line: Line =
            read(text).map_err(|error| Failure::Runtime(format!("unexpected line: {error}")))?;
        if let Line::End { transactions, more, error } = line {
            ended = Some((transactions, more, error));
        } else {
            print(&readable(&line))?;
        }
        Ok(())
    })?;
    match ended {
        Some((_, _, Some(error))) => Err(Failure::Runtime(error)),
        Some((transactions, true, None)) => {
            say!("# {} shown; there are more: raise --limit", counted(transactions, "transaction"));
            Ok(())
        }
        Some((transactions, false, None)) => {
            say!("# {}", counted(transactions, "transaction"));
            Ok(())
        }
        None => Err(Failure::Runtime("the daemon ended the list early".to_owned())),
    }
}

/// Like the output of `mysqlbinlog -v`.
fn readable(line: &Line) -> String {
    match line {
        Line::Transaction {
            gtid,
            original_commit_timestamp,
            last_committed,
            sequence_number,
            event_bytes,
            segment,
            offset,
            ..
        } => format!(
            "# {gtid}  committed {original_commit_timestamp}  last_committed={last_committed} \
             sequence_number={sequence_number}  {event_bytes} bytes  segment {segment} at {offset}\n"
        ),
        Line::Rows { table, operation, rows, bytes, key_columns } => {
            let rows = rows.map_or_else(|| "rows".to_owned(), |rows| format!("{rows} rows"));
            let key = match key_columns {
                Some(columns) => {
                    let columns: Vec<String> = columns.iter().map(|c| format!("@{c}")).collect();
                    format!("key {}", columns.join(","))
                }
                None => "no key known".to_owned(),
            };
            format!("### {operation} {table}  {rows}  {key}  {bytes} bytes\n")
        }
        Line::Row { before, after } => {
            let image = |head: &str, image: &Option<Vec<String>>| match image {
                Some(columns) => {
                    let columns: String =
                        columns.iter().map(|c| format!("###     {c}\n")).collect();
                    format!("###   {head}\n{columns}")
                }
                None => String::new(),
            };
            format!("{}{}", image("WHERE", before), image("SET", after))
        }
        Line::Statement { database, statement, bytes } => match database.as_str() {
            "" => format!("### {statement}  {bytes} bytes\n"),
            database => format!("### {statement}  in {database}  {bytes} bytes\n"),
        },
        Line::Event { event_type, bytes } => format!("### {event_type}  {bytes} bytes\n"),
        Line::End { .. } => String::new(),
    }
}

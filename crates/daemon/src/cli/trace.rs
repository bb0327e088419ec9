//! `trace`.

use std::fs::File;
use std::io::{LineWriter, Write, stdout};

use csa_provider::server::visible::one_line;

use super::arguments::Trace;
use super::client::Client;
use crate::host::Failure;

/// Saves or prints the timeline as it arrives.
pub(super) fn save(client: &Client, Trace { seconds, output }: &Trace) -> Result<(), Failure> {
    let path = format!("/channels/{}/trace?seconds={seconds}", client.channel()?);
    let mut out: Box<dyn Write> = match output {
        Some(file) => {
            let file = File::create(file).map_err(|error| {
                Failure::Input(format!("--output: {}: {error}", file.display()))
            })?;
            // So that the file shows how far it is.
            Box::new(LineWriter::new(file))
        }
        None => Box::new(stdout().lock()),
    };
    let mut is_whole = false;
    client.get_lines(&path, |line| {
        // The last line closes the list of events.
        is_whole = line.starts_with(']');
        writeln!(out, "{}", one_line(line)).map_err(unwritten)
    })?;
    out.flush().map_err(unwritten)?;
    match is_whole {
        true => Ok(()),
        false => Err(Failure::Runtime("the daemon ended the timeline early; try again".to_owned())),
    }
}

fn unwritten(error: std::io::Error) -> Failure {
    Failure::Runtime(format!("the timeline can't be written: {error}"))
}

//! The operator of simulated daemons.

use csa_applier::{Error, ErrorClass};
use tokio::time::{Duration, sleep};

use crate::history::History;
use crate::oracle;
use crate::target::Server;

/// Does what is needed before a daemon that ended with this error may start again.
///
/// # Panics
/// No daemon should end with it.
pub(crate) async fn repair(server: &Server, history: &History, error: &Error, may_lose: bool) {
    match error {
        // The daemon begins again at the checkpoint.
        Error::Older { .. } | Error::Fenced { .. } => {}
        // The server lost rows of ours in a crash. The daemon can't know that nothing else is missing, so it
        // leaves this to an operator, who finds it so.
        Error::Checkpoint { what, .. }
            if may_lose
                && ["are gone", "disappeared", "lost transactions"]
                    .iter()
                    .any(|part| what.contains(part)) => {}
        Error::InDoubt { .. } => decide(server, history).await,
        // The daemon tries again on its own. A session that was refused must end no run.
        Error::Target { .. } | Error::Bookkeeping(_) | Error::Transaction { .. }
            if error.class() == ErrorClass::Slow =>
        {
            sleep(Duration::from_secs(60)).await;
        }
        error => panic!("stopped: {}", error.with_values()),
    }
}

async fn decide(server: &Server, history: &History) {
    let (applied, contents) = server
        .with_state(|state| (oracle::applied(state).unwrap_or_default(), oracle::contents(state)));
    // While a copy converges, the rows are those of no state of the source.
    let definition = history.transactions.get(applied).and_then(|next| next.definition.as_ref());
    let is_executed = match definition {
        Some(definition) => server.has_defined(definition),
        None => history.states.get(applied + 1) == Some(&contents),
    };
    let statement = match is_executed {
        true => "UPDATE csa.statement SET executed=1 WHERE channel='c'",
        false => "DELETE FROM csa.statement WHERE channel='c'",
    };
    while !server.operate(statement) {
        sleep(Duration::from_secs(1)).await;
    }
}

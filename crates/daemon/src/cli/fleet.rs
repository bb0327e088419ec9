//! `fleet` and `drain`.

use std::time::{Duration, Instant};

use crate::claims::fleet_view::{FleetView, MemberView};
use csa_provider::server::visible::one_line;
use serde_json::json;

use super::arguments::{Drain, end_after};
use super::client::Client;
use super::output::{print, say};
use super::table;
use crate::host::Failure;

/// Between two looks at a drain.
const LOOK: Duration = Duration::from_millis(300);

/// Prints members and claims; fails where the engine does not answer, or a channel is not claimed.
pub(super) fn show(client: &Client, json: bool) -> Result<(), Failure> {
    if json {
        print(&format!("{}\n", one_line(&client.get_text("/fleet")?)))?;
        return Ok(());
    }
    let fleet: FleetView = client.get("/fleet")?;
    if fleet.engine == "none" {
        say!("no fleet: claims.engine is \"none\", and this daemon runs all of its channels");
        return Ok(());
    }
    if fleet.members.is_empty() && fleet.error.is_none() {
        let name = fleet.name;
        return Err(Failure::Runtime(format!(
            "{name} is joining the fleet; ask again in a moment"
        )));
    }
    print(&text(&fleet))?;
    let unclaimed = fleet.unclaimed.join(", ");
    match (fleet.error, unclaimed.as_str()) {
        (Some(error), _) => {
            Err(Failure::Runtime(format!("{} does not answer: {error}", fleet.engine)))
        }
        (None, "") => Ok(()),
        (None, unclaimed) => Err(Failure::Runtime(format!("not claimed: {unclaimed}"))),
    }
}

fn text(fleet: &FleetView) -> String {
    let mut rows = vec![["DAEMON", "WEIGHT", "SHARE", "CLAIMED", "STATE"].map(str::to_owned)];
    for MemberView { name, weight, draining, claims, share, .. } in &fleet.members {
        let state = match (*draining, *name == fleet.name) {
            (true, _) => "draining",
            (false, true) if !fleet.has_session => "no session",
            (false, _) => "member",
        };
        let own = if *name == fleet.name { " (this)" } else { "" };
        rows.push([
            format!("{name}{own}"),
            weight.to_string(),
            share.to_string(),
            claims.to_string(),
            state.to_owned(),
        ]);
    }
    let mut text = table::columns(&rows);
    let mut rows = vec![["CHANNEL", "DAEMON"].map(str::to_owned)];
    let claimed = fleet.claims.iter().map(|(channel, holder)| [channel.clone(), holder.clone()]);
    rows.extend(claimed);
    rows.extend(fleet.unclaimed.iter().map(|channel| [channel.clone(), "-".to_owned()]));
    rows[1..].sort();
    text.push('\n');
    text.push_str(&table::columns(&rows));
    text
}

/// Gives the channels away, and waits until others have them.
pub(super) fn drain(client: &Client, Drain { undo, timeout }: Drain) -> Result<(), Failure> {
    let _: FleetView = client.post("/fleet/drain", &json!({ "undo": undo }))?;
    if undo {
        say!("takes channels again, once no daemon has come or gone for claims.rebalance_delay");
        return Ok(());
    }
    let until = end_after(Duration::from_secs(timeout));
    loop {
        let fleet: FleetView = client.get("/fleet")?;
        let left = fleet.own().filter(|own| own.draining).map(|own| own.claims);
        if fleet.is_drained() {
            say!("drained: this daemon has no channel");
            return Ok(());
        }
        if let Some(left) = left
            && left > 0
            && left == fleet.staying
        {
            return Err(Failure::Runtime(format!(
                "{left} channels stay, because no other daemon of the fleet can take them; stop the daemon \
                 to end them"
            )));
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            let why = fleet.error.map(|error| format!(": {error}")).unwrap_or_default();
            let left = match left {
                Some(0) => format!("{} channels are not claimed by another daemon", fleet.awaited),
                Some(left) => format!("{left} channels are still here"),
                None => "all channels are still here".to_owned(),
            };
            return Err(Failure::Runtime(format!(
                "{left} after {timeout} s{why}; the drain continues"
            )));
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fleet_is_shown_with_shares_and_holders() {
        let member = |name: &str, claims, draining| MemberView {
            name: name.to_owned(),
            weight: 100,
            draining,
            claims,
            share: 2,
            ..MemberView::default()
        };
        let claim = |channel: &str, holder: &str| (channel.to_owned(), holder.to_owned());
        let fleet = FleetView {
            engine: "etcd".to_owned(),
            name: "db1".to_owned(),
            has_session: true,
            members: vec![member("db1", 1, false), member("db2", 1, true)],
            claims: [claim("shop", "db2"), claim("crm", "db1")].into(),
            unclaimed: vec!["pay".to_owned()],
            ..FleetView::default()
        };
        let wanted = "\
DAEMON      WEIGHT  SHARE  CLAIMED  STATE
db1 (this)  100     2      1        member
db2         100     2      1        draining

CHANNEL  DAEMON
crm      db1
pay      -
shop     db2
";
        assert_eq!(text(&fleet), wanted);
        let cut_off = FleetView { has_session: false, ..fleet };
        assert!(text(&cut_off).contains("no session"));
    }
}

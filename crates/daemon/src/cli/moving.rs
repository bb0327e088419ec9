//! `move`: its command line.

use std::path::Path;
use std::time::Duration;

use super::arguments::{Admin, MoveAction, MoveArguments, VerifyArguments};
use super::client::Client;
use super::control;
use super::move_guard;
use super::output::{print, say};
use super::verify::verify;
use crate::config::{ChannelSettings, Config};
use crate::host::{Failure, runtime};
use crate::moving::{DaemonControl, Direction, Mover, Pair, number_on_host};
use crate::notify::{Event, Origin, deliver, host};
use crate::observe::view::{ChannelView, CommandView};

/// Attempts to send an event.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// The daemon of this configuration.
struct RunningDaemon(Client);

impl DaemonControl for RunningDaemon {
    fn view(&self, channel: &str) -> Result<ChannelView, Failure> {
        self.0.view_of(channel)
    }

    fn command(&self, channel: &str, command: &str) -> Result<CommandView, Failure> {
        control::command(&self.0, channel, command)
    }

    fn tell(&self, line: &str) {
        // A move continues, though nobody can read of it any more.
        let _ = print(&format!("{line}\n"));
    }
}

/// Sends the end of a move to the channel's receiver of events.
async fn announce(mover: &Mover<'_>, running: &RunningDaemon) {
    let Some((kind, detail)) = mover.news() else { return };
    let ChannelSettings { name, notify, .. } = mover.channel();
    if !notify.has_receiver() || !notify.events.contains(&kind) {
        return;
    }
    let unknown = || ChannelView { channel_name: name.clone(), ..ChannelView::default() };
    let view = running.view(name).unwrap_or_else(|_| unknown());
    let origin = Origin::now(host());
    let event = Event::new(kind, &view, Some(&detail), 1, origin);
    for attempt in 1..=ATTEMPTS {
        match deliver(notify, &event).await {
            Ok(()) => return,
            Err(why) if attempt == ATTEMPTS => running.tell(&format!("no event was sent: {why}")),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Carries out what the options ask for.
pub(crate) fn move_applications(
    path: &Path,
    admin: &Admin,
    arguments: MoveArguments,
) -> Result<(), Failure> {
    let config = Config::load(path)?;
    let pair = || Pair::of(&config, admin.channel.as_deref());
    let channel = pair()?.up.name.clone();
    let running = RunningDaemon(Client::new(path, admin)?);
    let action = arguments.action;
    if (action.cut_over || action.back) && !arguments.plan && !move_guard::is_worker() {
        return move_guard::guard(number_on_host(pair()?.up.directory()));
    }
    let runtime = runtime()?;
    let mut compare = None;
    runtime.block_on(async {
        let towards = |direction| Mover::new(pair()?, &running, direction);
        if arguments.plan {
            return show_plan(action, towards).await;
        }
        match action {
            _ if action.prepare => {
                compare = Some(towards(Direction::CutOver)?.prepare().await?);
                Ok(())
            }
            _ if action.cut_over || action.back => {
                let back = action.back.then_some(Direction::Back);
                go(towards(back.unwrap_or(Direction::CutOver))?, &running).await
            }
            _ if action.finish => towards(Direction::CutOver)?.finish().await,
            _ if action.undo => {
                let mut mover = towards(Direction::CutOver)?;
                let direction = mover.next_direction().await?;
                drop(mover);
                let mut mover = towards(direction)?;
                let ended = mover.give_up().await;
                announce(&mover, &running).await;
                ended
            }
            _ => Err(Failure::Input(
                "name one of --plan, --prepare, --cut-over, --back, --undo and --finish".to_owned(),
            )),
        }
    })?;
    let Some(number) = compare else { return Ok(()) };
    if !arguments.no_verify {
        compare_all(path, Admin { channel: Some(channel), ..admin.clone() })?;
    }
    runtime.block_on(async {
        let mut mover = Mover::new(pair()?, &running, Direction::CutOver)?;
        mover.prepared(number).await
    })?;
    say!("next: csa-daemon move --plan, then csa-daemon move --cut-over");
    Ok(())
}

/// Shows the plan for the direction that the action names, else for what comes next.
async fn show_plan<'a>(
    action: MoveAction,
    towards: impl Fn(Direction) -> Result<Mover<'a>, Failure>,
) -> Result<(), Failure> {
    let mut mover = towards(Direction::CutOver)?;
    let direction = match (action.cut_over || action.prepare, action.back) {
        (true, _) => Direction::CutOver,
        (_, true) => Direction::Back,
        _ => mover.next_direction().await?,
    };
    // It has the locks.
    drop(mover);
    towards(direction)?.plan().await
}

/// Moves the applications, and says how that ended.
async fn go(mut mover: Mover<'_>, running: &RunningDaemon) -> Result<(), Failure> {
    mover.stop_with(move_guard::stop_on_signal()?);
    mover.begins_after(move_guard::number());
    let ended = mover.go().await;
    announce(&mover, running).await;
    ended
}

fn compare_all(path: &Path, admin: Admin) -> Result<(), Failure> {
    verify(path, &admin, &VerifyArguments::whole()).map_err(|failure| match failure {
        // The step ends as it does when a signal comes before the comparison.
        Failure::Interrupted { text, .. } => Failure::Runtime(text),
        failure => failure,
    })
}

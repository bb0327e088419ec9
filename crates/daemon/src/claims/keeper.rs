//! Keeps one daemon's place in the fleet: joins, renews, claims, drains and releases.
//!
//! While the engine does not answer, the daemon takes no channel and gives none away; those that it runs
//! continue, because the target's lock is what keeps others from applying. Once the engine answers again,
//! channels that others have claimed meanwhile end here. A session that is not known to last (two thirds of
//! the time to live without an answer, by the monotonic clock) counts as ended.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::claimed_channels::ClaimedChannels;
use super::desired::Shares;
use super::engine::{Claim, Engine, EngineError, Fleet, Member};
use super::fleet_view::{FleetView, MemberView};
use super::plan::{Hold, Situation, Steps};

/// After joining, time for the others of a fleet that starts to join too.
const SETTLE: Duration = Duration::from_secs(2);
/// Pause after a change, in which others may follow: a member that starts claims many channels.
const COALESCE: Duration = Duration::from_millis(100);
/// Pause before the next attempt while the engine does not answer.
const RETRY: Duration = Duration::from_secs(1);

/// This daemon as a member.
#[derive(Debug, Clone)]
pub struct Options {
    /// The engine's name, for people.
    pub engine: &'static str,
    pub name: String,
    /// See [`Member::id`].
    pub id: String,
    pub weight: u32,
    /// The time to live of a session that is not renewed.
    pub ttl: Duration,
    /// Time without any change of members after which channels move to where they belong.
    pub rebalance_delay: Duration,
}

/// The keeper as others see and command it; cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    shared: Arc<KeeperShared>,
}

impl Handle {
    #[must_use]
    pub fn view(&self) -> FleetView {
        self.shared.state.lock().view(self.shared.ttl)
    }

    /// Gives all channels away that others can take, or takes this daemon's share again.
    pub fn drain(&self, draining: bool) {
        self.shared.state.lock().view.draining = draining;
        self.shared.poke.notify_one();
    }

    /// The configuration may have changed.
    pub fn look_again(&self) {
        self.shared.poke.notify_one();
    }
}

#[derive(Debug)]
struct KeeperShared {
    ttl: Duration,
    state: Mutex<KeeperState>,
    /// Wakes the keeper.
    poke: Notify,
}

#[derive(Debug, Default)]
struct KeeperState {
    session: Option<MemberSession>,
    /// Sessions so far, which tells answers about an old one from those about this.
    sessions: u64,
    view: FleetView,
}

#[derive(Debug, Clone, Copy)]
struct MemberSession {
    number: u64,
    joined: Instant,
    /// When the request was sent that renewed it last: it lasts from then on, at least.
    renewed: Instant,
}

impl MemberSession {
    fn is_sure(&self, ttl: Duration) -> bool {
        self.renewed.elapsed() < ttl / 3 * 2
    }
}

impl KeeperState {
    fn view(&self, ttl: Duration) -> FleetView {
        let has_session = self.session.is_some_and(|session| session.is_sure(ttl));
        FleetView { has_session, ..self.view.clone() }
    }
}

impl KeeperShared {
    fn session(&self) -> Option<MemberSession> {
        self.state.lock().session
    }

    fn joined(&self, renewed: Instant) {
        let mut state = self.state.lock();
        if state.session.is_none() {
            state.sessions += 1;
            let number = state.sessions;
            state.session = Some(MemberSession { number, joined: Instant::now(), renewed });
        }
    }

    fn renewed(&self, number: u64, at: Instant) {
        if let Some(session) = &mut self.state.lock().session
            && session.number == number
        {
            session.renewed = at;
        }
    }

    fn ended(&self, number: u64) {
        let mut state = self.state.lock();
        if state.session.is_some_and(|session| session.number == number) {
            state.session = None;
            warn!("the session in the fleet has ended; joining again");
            self.poke.notify_one();
        }
    }

    fn answered(&self) {
        if self.state.lock().view.error.take().is_some() {
            info!("the engine of the claims answers again");
        }
    }

    fn failed(&self, error: &str) {
        let mut state = self.state.lock();
        if state.view.error.is_none() {
            warn!(
                error,
                "the engine of the claims does not answer; channels that run continue, others are not taken"
            );
        }
        state.view.error = Some(error.to_owned());
    }
}

/// Renews the session until dropped; apart from the keeper, whose other requests must not delay it.
async fn renew<E: Engine>(engine: Arc<E>, shared: Arc<KeeperShared>) {
    let ttl = shared.ttl;
    loop {
        let Some(session) = shared.session() else {
            sleep(ttl / 10).await;
            continue;
        };
        sleep_until(session.renewed + ttl / 3).await;
        let sent = Instant::now();
        let why = match timeout(ttl / 3, engine.renew()).await {
            Ok(Ok(())) => {
                shared.renewed(session.number, sent);
                continue;
            }
            Ok(Err(EngineError::SessionEnded)) => {
                shared.ended(session.number);
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        shared.failed(&why);
        sleep(ttl / 10).await;
    }
}

/// One daemon's place in the fleet.
#[derive(Debug)]
pub struct Keeper<E, W> {
    engine: Arc<E>,
    work: Arc<W>,
    options: Options,
    shared: Arc<KeeperShared>,
    /// The member as the engine knows it, in the session of this number.
    published: Option<(u64, Member)>,
    mine: BTreeMap<String, Hold>,
    /// The instances of channels that were begun, the last one of each.
    begun: BTreeMap<String, u64>,
    /// Channels with true once they have ended, and with false if they stay.
    ending: JoinSet<(bool, String)>,
    /// Ended, and not released yet.
    ended: Vec<String>,
    /// The members as seen last.
    members: Vec<Member>,
    unchanged_since: Instant,
    shares: Shares,
    /// The standing of channels that others have, as shown last, and by which instance.
    shown: BTreeMap<String, (u64, String)>,
}

impl<E: Engine, W: ClaimedChannels> Keeper<E, W> {
    #[must_use]
    pub fn new(engine: E, work: W, options: Options) -> (Self, Handle) {
        let view = FleetView {
            engine: options.engine.to_owned(),
            name: options.name.clone(),
            ..FleetView::default()
        };
        let shared = Arc::new(KeeperShared {
            ttl: options.ttl,
            state: Mutex::new(KeeperState { view, ..KeeperState::default() }),
            poke: Notify::new(),
        });
        let handle = Handle { shared: Arc::clone(&shared) };
        let keeper = Self {
            engine: Arc::new(engine),
            work: Arc::new(work),
            options,
            shared,
            published: None,
            mine: BTreeMap::new(),
            begun: BTreeMap::new(),
            ending: JoinSet::new(),
            ended: Vec::new(),
            members: Vec::new(),
            unchanged_since: Instant::now(),
            shares: Shares::default(),
            shown: BTreeMap::new(),
        };
        (keeper, handle)
    }

    /// Keeps the place until `stop`, and the session until `ended`, when no channel runs any more. The
    /// claims outlive a daemon that stops with channels, for the rest of their time: if it starts again
    /// in that time, nothing moves.
    pub async fn run(mut self, stop: CancellationToken, ended: CancellationToken) {
        let renewing = tokio::spawn(renew(Arc::clone(&self.engine), Arc::clone(&self.shared)));
        let _renewing = AbortOnDropHandle::new(renewing);
        while !stop.is_cancelled() {
            tokio::select! {
                () = self.round() => {}
                () = stop.cancelled() => {}
            }
        }
        ended.cancelled().await;
        if self.mine.is_empty() && self.shared.session().is_some() {
            // Otherwise it ends on its own.
            let _ = self.engine.leave().await;
        }
    }

    async fn round(&mut self) {
        match self.steps().await {
            Ok(until) => {
                self.shared.answered();
                let engine = Arc::clone(&self.engine);
                let changed = async {
                    let pause = if engine.changed().await.is_ok() { COALESCE } else { RETRY };
                    sleep(pause).await;
                };
                self.wait(changed, until).await;
            }
            Err(error) => {
                match (&error, self.shared.session()) {
                    (EngineError::SessionEnded, Some(session)) => self.shared.ended(session.number),
                    _ => self.shared.failed(&error.to_string()),
                }
                self.wait(std::future::pending(), Instant::now() + RETRY).await;
            }
        }
    }

    /// Waits for the first event that calls for another round.
    async fn wait(&mut self, changed: impl Future<Output = ()>, until: Instant) {
        tokio::select! {
            () = changed => {}
            () = sleep_until(until) => {}
            () = self.shared.poke.notified() => {}
            Some(ended) = self.ending.join_next() => self.note_end(ended),
        }
        while let Some(ended) = self.ending.try_join_next() {
            self.note_end(ended);
        }
    }

    fn note_end(&mut self, ended: Result<(bool, String), JoinError>) {
        let Ok((has_ended, channel)) = ended else { return };
        if has_ended {
            self.ended.push(channel);
        } else {
            self.mine.insert(channel, Hold::Working);
        }
    }

    /// Takes all steps that are due; returns when to look again at the latest.
    async fn steps(&mut self) -> Result<Instant, EngineError> {
        let instances = self.work.channels();
        self.forget_replaced(&instances);
        let known: BTreeSet<String> = instances.keys().cloned().collect();
        let session = self.published(&known).await?;
        if !self.ended.is_empty() {
            self.engine.release(&self.ended).await?;
            for channel in self.ended.drain(..) {
                self.mine.remove(&channel);
            }
        }
        let mut fleet = self.engine.look().await?;
        let own =
            |member: &Member| member.name == self.options.name && member.id == self.options.id;
        if !fleet.members.iter().any(own) {
            return Err(EngineError::SessionEnded);
        }
        self.note(&fleet.members);
        let settled = session.joined + SETTLE;
        let stable = self.unchanged_since + self.options.rebalance_delay;
        let now = Instant::now();
        let held: BTreeSet<String> =
            self.mine.keys().filter(|channel| self.work.is_held(channel)).cloned().collect();
        let situation = Situation {
            me: &self.options.name,
            known: &known,
            mine: &self.mine,
            held: &held,
            claims: &fleet.claims,
            shares: &self.shares,
            is_settled: now >= settled,
            is_stable: now >= stable,
            is_draining: self.published.as_ref().is_some_and(|(_, member)| member.draining),
        };
        let steps = situation.steps();
        self.take(&steps, &instances, &mut fleet).await?;
        self.give(steps, &fleet).await?;
        self.show(&instances, &fleet);
        let wakes = [settled, stable, now + self.options.ttl];
        Ok(wakes.into_iter().filter(|wake| *wake > now).min().unwrap_or(now + RETRY))
    }

    /// Forgets channels that were removed and added again since they were begun: the removal has ended all of them, and
    /// what has their names now does not run.
    fn forget_replaced(&mut self, instances: &BTreeMap<String, u64>) {
        let Self { mine, begun, .. } = self;
        mine.retain(|channel, hold| {
            let is_same = |now| begun.get(channel) == Some(now);
            *hold == Hold::Ending || instances.get(channel).is_none_or(is_same)
        });
    }

    /// Joins, if the engine does not know this member as it is now.
    async fn published(&mut self, known: &BTreeSet<String>) -> Result<MemberSession, EngineError> {
        let member = Member {
            name: self.options.name.clone(),
            id: self.options.id.clone(),
            weight: self.options.weight,
            draining: self.shared.state.lock().view.draining,
            channels: known.clone(),
        };
        let lasting = self.shared.session();
        if let (Some(session), Some((number, published))) = (lasting, &self.published)
            && session.number == *number
            && *published == member
        {
            return Ok(session);
        }
        let sent = Instant::now();
        self.engine.join(&member).await?;
        self.shared.joined(sent);
        let session = self.shared.session().ok_or(EngineError::SessionEnded)?;
        info!(
            name = member.name,
            weight = member.weight,
            draining = member.draining,
            "in the fleet"
        );
        self.published = Some((session.number, member));
        Ok(session)
    }

    fn note(&mut self, members: &[Member]) {
        if self.members != members {
            self.members = members.to_vec();
            self.unchanged_since = Instant::now();
            self.shares = Shares::of(members);
        }
    }

    async fn take(
        &mut self,
        steps: &Steps,
        instances: &BTreeMap<String, u64>,
        fleet: &mut Fleet,
    ) -> Result<(), EngineError> {
        let is_sure = self.shared.session().is_some_and(|session| session.is_sure(self.shared.ttl));
        if steps.take.is_empty() || !is_sure {
            return Ok(());
        }
        for channel in self.engine.claim(&steps.take).await? {
            if !self.mine.contains_key(&channel) {
                info!(channel, "claimed");
                self.shown.remove(&channel);
                if let Some(&instance) = instances.get(&channel) {
                    self.work.begin(&channel, instance).await;
                    self.begun.insert(channel.clone(), instance);
                }
                self.mine.insert(channel.clone(), Hold::Working);
            }
            let holder = self.options.name.clone();
            fleet.claims.insert(channel, Claim { holder, is_current: true });
        }
        Ok(())
    }

    async fn give(&mut self, steps: Steps, fleet: &Fleet) -> Result<(), EngineError> {
        let end = steps.end.into_iter().map(|channel| (channel, false));
        let moves = steps.moves.into_iter().map(|channel| (channel, true));
        for (channel, may_stay) in end.chain(moves) {
            let claim =
                fleet.claims.get(&channel).filter(|claim| claim.holder != self.options.name);
            match (claim, self.shares.owner(&channel)) {
                (Some(claim), _) => {
                    warn!(channel, holder = claim.holder, "another daemon has claimed the channel");
                }
                (None, owner) => info!(channel, to = owner, "giving the channel away"),
            }
            self.mine.insert(channel.clone(), Hold::Ending);
            let work = Arc::clone(&self.work);
            self.ending.spawn(async move {
                if may_stay {
                    return (work.move_away(&channel).await, channel);
                }
                work.end(&channel).await;
                (true, channel)
            });
        }
        match steps.release.is_empty() {
            true => Ok(()),
            false => self.engine.release(&steps.release).await,
        }
    }

    fn show(&mut self, instances: &BTreeMap<String, u64>, fleet: &Fleet) {
        let mut unclaimed = Vec::new();
        self.shown.retain(|channel, (instance, _)| instances.get(channel) == Some(instance));
        for (channel, instance) in instances {
            if self.mine.contains_key(channel) {
                continue;
            }
            let (claim, owner) = (fleet.claims.get(channel), self.shares.owner(channel));
            let detail = match (claim, owner) {
                (Some(claim), _) => format!("daemon {} has claimed the channel", claim.holder),
                (None, Some(owner)) => format!("not claimed; daemon {owner} should claim it"),
                (None, None) => "not claimed; no daemon of the fleet can take it".to_owned(),
            };
            if claim.is_none() {
                unclaimed.push(channel.clone());
            }
            if self.shown.get(channel).is_none_or(|(_, shown)| *shown != detail) {
                match claim.is_none() && owner == Some(self.options.name.as_str()) {
                    true => self.work.awaits(channel, &detail),
                    false => self.work.stands_by(channel, &detail),
                }
                self.shown.insert(channel.clone(), (*instance, detail));
            }
        }
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for claim in fleet.claims.values() {
            *counts.entry(&claim.holder).or_default() += 1;
        }
        let member = |member: &Member| MemberView {
            name: member.name.clone(),
            weight: member.weight,
            draining: member.draining,
            channels: member.channels.len() as u64,
            claims: counts.get(member.name.as_str()).copied().unwrap_or_default(),
            share: self.shares.count(&member.name),
        };
        let members = fleet.members.iter().map(member).collect();
        let holders = fleet.claims.iter().map(|(name, claim)| (name.clone(), claim.holder.clone()));
        let me = self.options.name.as_str();
        let stays = |channel: &&String| self.shares.owner(channel).is_none_or(|owner| owner == me);
        let staying = self.mine.keys().filter(stays).count() as u64;
        let awaited = unclaimed.iter().filter(|channel| !stays(channel)).count() as u64;
        let view = &mut self.shared.state.lock().view;
        view.staying = staying;
        view.awaited = awaited;
        view.members = members;
        view.claims = holders.collect();
        view.unclaimed = unclaimed;
    }
}

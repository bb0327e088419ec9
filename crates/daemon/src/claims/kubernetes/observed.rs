//! The fleet as one daemon has seen it: who lives, and which claims are free. Pure; the caller brings the time.
//!
//! Two rules make this safe without any clock but the observer's own:
//! - A member is **overdue** when its Lease has not changed for its time to live since this daemon saw it. It is
//!   **ended** when its Lease is gone, which a deletion of just that version brings about: a renewal in between wins.
//! - A claim is free when the session that it names has ended. Claims are read before members, and a session never
//!   begins again, so a claim that is free stays so until its version changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::super::engine::{Claim, Fleet, Member};
use super::object::{ClaimLease, LeaseSession, MemberLease, Object, Version};

/// A member, and since when its Lease has been as it is.
#[derive(Debug)]
struct Sighting {
    lease: MemberLease,
    /// When the answer that showed it had come: the renewal was earlier.
    since: Instant,
}

/// A channel as it can be claimed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClaimStanding {
    /// The claim is free: it is taken by a new object, or over this version.
    Free(Option<Version>),
    /// Another member has it.
    Taken,
}

#[derive(Debug)]
pub(super) struct Observed {
    ttl: Duration,
    /// The members by object.
    members: BTreeMap<String, Sighting>,
    /// The claims by channel.
    claims: BTreeMap<String, ClaimLease>,
    /// Earlier sessions of members that have begun a new one, and since when each is known. Their claims last
    /// for another time to live, so that a restarted daemon finds its channels.
    earlier: BTreeMap<LeaseSession, Instant>,
    /// The last answer of the API server.
    answered: Option<Instant>,
    /// The beginning of the next watch; `None` if everything has to be listed.
    pub(super) position: Option<String>,
}

impl Observed {
    pub(super) fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            members: BTreeMap::new(),
            claims: BTreeMap::new(),
            earlier: BTreeMap::new(),
            answered: None,
            position: None,
        }
    }

    /// The API server has answered. If it had been away, nobody could renew: all members have their time again.
    pub(super) fn answered(&mut self, now: Instant) {
        // Longer than from one renewal to the next.
        let away = self.answered.is_none_or(|before| now - before > self.ttl / 2);
        self.answered = Some(now);
        if away {
            self.members.values_mut().for_each(|sighting| sighting.since = now);
        }
    }

    /// Takes everything that a list of the fleet's objects has shown.
    pub(super) fn all(&mut self, objects: Vec<Object>, position: String, received: Instant) {
        self.claims.clear();
        let mut members = Vec::new();
        for object in objects {
            match object {
                Object::Member(lease) => members.push(lease),
                Object::Claim(lease) => {
                    self.claims.insert(lease.channel.clone(), lease);
                }
            }
        }
        self.members(members, received);
        self.position = Some(position);
    }

    /// All members, as a list has shown them that was asked for after the claims were known.
    pub(super) fn members(&mut self, leases: Vec<MemberLease>, received: Instant) {
        let mut before = std::mem::take(&mut self.members);
        for lease in leases {
            let sighting = before.remove(&lease.version.object);
            if let Some(sighting) = sighting {
                self.members.insert(lease.version.object.clone(), sighting);
            }
            self.member(lease, received);
        }
        self.note_earlier(received);
    }

    /// A member as an answer has shown it.
    pub(super) fn member(&mut self, lease: MemberLease, received: Instant) {
        let is_known = self
            .members
            .get(&lease.version.object)
            .is_some_and(|sighting| sighting.lease.version == lease.version);
        if !is_known {
            let sighting = Sighting { lease, since: received };
            self.members.insert(sighting.lease.version.object.clone(), sighting);
        }
    }

    /// Notes the sessions that newer ones have replaced, and since when that is known.
    fn note_earlier(&mut self, received: Instant) {
        let mut known = std::mem::take(&mut self.earlier);
        for session in self.claims.values().map(|claim| &claim.session) {
            if !self.lasts(session) && self.is_identity(session.identity()) {
                let since = known.remove(session).unwrap_or(received);
                self.earlier.entry(session.clone()).or_insert(since);
            }
        }
    }

    /// Takes a claim that this daemon has written, or given up.
    pub(super) fn claim(&mut self, channel: &str, lease: Option<ClaimLease>) {
        match lease {
            Some(lease) => self.claims.insert(channel.to_owned(), lease),
            None => self.claims.remove(channel),
        };
    }

    /// Returns a change that a watch has brought. Returns whether the fleet differs by more than a
    /// renewal.
    pub(super) fn change(&mut self, object: Object, is_deletion: bool, received: Instant) -> bool {
        match object {
            Object::Member(lease) => {
                let object = &lease.version.object;
                let same = |known: &MemberLease| {
                    known.session == lease.session && known.member == lease.member
                };
                let is_same = self.members.get(object).is_some_and(|known| same(&known.lease));
                match is_deletion {
                    true => {
                        self.members.remove(object);
                    }
                    false => self.member(lease, received),
                }
                is_deletion || !is_same
            }
            Object::Claim(lease) => {
                let channel = lease.channel.clone();
                let known = self.claims.get(&channel).map(|known| &known.session);
                let differs = known != (!is_deletion).then_some(&lease.session);
                self.claim(&channel, (!is_deletion).then_some(lease));
                differs
            }
        }
    }

    /// A session that takes no longer than this to be renewed is alive. The clocks of two hosts differ by far less
    /// than a tenth.
    fn patience(&self, lease: &MemberLease) -> Duration {
        self.ttl.max(Duration::from_secs(lease.seconds)) * 11 / 10
    }

    /// Members other than `own` that an answer still showed unchanged after their time: the request for it was
    /// sent at this moment. Their Leases are to be deleted in just these versions.
    pub(super) fn overdue(&self, own: Option<&LeaseSession>, sent: Instant) -> Vec<MemberLease> {
        let is_overdue = |sighting: &&Sighting| {
            sent.checked_duration_since(sighting.since)
                .is_some_and(|age| age >= self.patience(&sighting.lease))
        };
        self.others(own).filter(is_overdue).map(|sighting| sighting.lease.clone()).collect()
    }

    /// When the first member other than `own` becomes overdue, unless it is renewed.
    pub(super) fn first_overdue(&self, own: Option<&LeaseSession>) -> Option<Instant> {
        self.others(own).map(|sighting| sighting.since + self.patience(&sighting.lease)).min()
    }

    fn others(&self, own: Option<&LeaseSession>) -> impl Iterator<Item = &Sighting> {
        let identity = own.map(LeaseSession::identity);
        self.members
            .values()
            .filter(move |sighting| Some(sighting.lease.session.identity()) != identity)
    }

    /// Its Lease is gone.
    pub(super) fn ended(&mut self, lease: &MemberLease) {
        self.members.remove(&lease.version.object);
    }

    /// It has renewed its Lease when it was nearly too late.
    pub(super) fn spared(&mut self, lease: &MemberLease, now: Instant) {
        if let Some(sighting) = self.members.get_mut(&lease.version.object) {
            sighting.since = now;
        }
    }

    fn lasts(&self, session: &LeaseSession) -> bool {
        self.members.values().any(|sighting| sighting.lease.session == *session)
    }

    fn is_identity(&self, identity: &str) -> bool {
        self.members.values().any(|sighting| sighting.lease.session.identity() == identity)
    }

    /// The claim is of a session that lasts, or of one whose daemon has just begun another.
    fn holds(&self, claim: &ClaimLease, now: Instant) -> bool {
        let recent = |since: &Instant| now < *since + self.ttl;
        self.lasts(&claim.session) || self.earlier.get(&claim.session).is_some_and(recent)
    }

    /// The fleet, as far as it lasts.
    pub(super) fn fleet(&self, own: Option<&LeaseSession>, now: Instant) -> Fleet {
        let mut members: Vec<Member> =
            self.members.values().filter_map(|sighting| sighting.lease.member.clone()).collect();
        members.sort_by(|one, other| one.name.cmp(&other.name));
        let lasting = self.claims.values().filter(|claim| self.holds(claim, now));
        let claim = |claim: &ClaimLease| {
            let (holder, is_current) =
                (claim.session.name().to_owned(), own == Some(&claim.session));
            (claim.channel.clone(), Claim { holder, is_current })
        };
        Fleet { members, claims: lasting.map(claim).collect() }
    }

    /// How this session can claim the channel.
    pub(super) fn standing(
        &self,
        channel: &str,
        own: &LeaseSession,
        now: Instant,
    ) -> ClaimStanding {
        match self.claims.get(channel) {
            None => ClaimStanding::Free(None),
            Some(claim)
                if claim.session.identity() == own.identity() || !self.holds(claim, now) =>
            {
                ClaimStanding::Free(Some(claim.version.clone()))
            }
            Some(_) => ClaimStanding::Taken,
        }
    }

    /// This member's claim to the channel, in whichever of its sessions; `None` also if it is not known.
    pub(super) fn held(&self, channel: &str, own: &LeaseSession) -> Option<&ClaimLease> {
        let claim = self.claims.get(channel);
        claim.filter(|claim| claim.session.identity() == own.identity())
    }

    /// Claims of sessions that have ended, to channels that no member has in its configuration: nobody will
    /// take them over.
    pub(super) fn orphans(&self, now: Instant, most: usize) -> Vec<ClaimLease> {
        let described = self.members.values().map(|sighting| sighting.lease.member.as_ref());
        let Some(described) = described.collect::<Option<Vec<&Member>>>() else {
            return Vec::new();
        };
        let known: BTreeSet<&String> =
            described.into_iter().flat_map(|member| &member.channels).collect();
        let is_orphan =
            |claim: &&ClaimLease| !known.contains(&claim.channel) && !self.holds(claim, now);
        self.claims.values().filter(is_orphan).take(most).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn session(name: &str, random: &str) -> LeaseSession {
        let member = Member { name: name.to_owned(), id: "1".to_owned(), ..Member::default() };
        LeaseSession::new(&member, random)
    }

    fn version(object: &str, number: u64) -> Version {
        Version { object: object.to_owned(), uid: "u".to_owned(), number: number.to_string() }
    }

    fn member(name: &str, random: &str, number: u64) -> MemberLease {
        let member = Member { name: name.to_owned(), id: "1".to_owned(), ..Member::default() };
        MemberLease {
            version: version(name, number),
            session: session(name, random),
            name: name.to_owned(),
            seconds: 10,
            member: Some(member),
        }
    }

    fn claim(channel: &str, name: &str, random: &str, number: u64) -> ClaimLease {
        ClaimLease {
            version: version(channel, number),
            session: session(name, random),
            channel: channel.to_owned(),
        }
    }

    /// `a` looks at `b`, which has the claim to `x`.
    fn pair(now: Instant) -> Observed {
        let mut observed = Observed::new(TTL);
        observed.answered(now);
        let objects = vec![
            Object::Member(member("a", "r", 1)),
            Object::Member(member("b", "r", 2)),
            Object::Claim(claim("x", "b", "r", 3)),
        ];
        observed.all(objects, "3".to_owned(), now);
        observed
    }

    /// Answers of other requests, as often as renewals bring them.
    fn pass(observed: &mut Observed, from: Instant, seconds: u64) -> Instant {
        for second in 1..=seconds {
            observed.answered(from + Duration::from_secs(second));
        }
        from + Duration::from_secs(seconds)
    }

    #[test]
    fn a_member_is_overdue_when_its_lease_was_seen_unchanged_for_its_time() {
        let (start, own) = (Instant::now(), session("a", "r"));
        let mut observed = pair(start);
        let then = pass(&mut observed, start, 10);
        assert_eq!(observed.overdue(Some(&own), then), [], "there is a margin");
        let due = observed.first_overdue(Some(&own)).expect("b");
        assert_eq!(due, start + TTL * 11 / 10);
        assert_eq!(observed.overdue(Some(&own), due), [member("b", "r", 2)]);
        assert_eq!(observed.overdue(None, due).len(), 2, "whoever it is that looks");
        // Seen unchanged by an answer whose request was sent earlier: nothing is proven.
        assert_eq!(observed.overdue(Some(&own), due - Duration::from_millis(1)), []);
        // A renewal, seen by a watch or a list, begins the time again.
        assert!(!observed.change(Object::Member(member("b", "r", 4)), false, then));
        assert_eq!(observed.overdue(Some(&own), due), []);
        assert_eq!(observed.first_overdue(Some(&own)), Some(then + TTL * 11 / 10));
        // One that gave itself more time has it.
        let mut slow = member("b", "r", 5);
        slow.seconds = 100;
        observed.members(vec![member("a", "r", 1), slow], then);
        assert_eq!(observed.first_overdue(Some(&own)), Some(then + Duration::from_secs(110)));
    }

    #[test]
    fn after_an_outage_of_the_api_server_all_have_their_time_again() {
        let (start, own) = (Instant::now(), session("a", "r"));
        let mut observed = pair(start);
        let back = start + TTL * 5;
        observed.answered(back);
        observed.members(vec![member("a", "r", 1), member("b", "r", 2)], back);
        assert_eq!(observed.overdue(Some(&own), back), []);
        assert_eq!(observed.fleet(Some(&own), back).claims.len(), 1);
        let due = pass(&mut observed, back, 11);
        assert_eq!(observed.overdue(Some(&own), due), [member("b", "r", 2)]);
    }

    #[test]
    fn a_claim_is_free_when_its_session_has_ended_and_not_before() {
        let (start, own) = (Instant::now(), session("a", "r"));
        let mut observed = pair(start);
        let much_later = start + TTL * 100;
        // Overdue is not ended: it may have renewed by now.
        assert_eq!(observed.standing("x", &own, much_later), ClaimStanding::Taken);
        assert_eq!(observed.standing("y", &own, start), ClaimStanding::Free(None));
        observed.ended(&member("b", "r", 2));
        let free = ClaimStanding::Free(Some(version("x", 3)));
        assert_eq!(observed.standing("x", &own, start), free);
        assert_eq!(observed.fleet(Some(&own), start).claims.len(), 0);
        assert_eq!(observed.orphans(start, 9), [claim("x", "b", "r", 3)]);
        let mut knows = member("a", "r", 5);
        knows.member.as_mut().expect("described").channels = ["x".to_owned()].into();
        observed.members(vec![knows.clone()], start);
        assert_eq!(observed.orphans(start, 9), [], "somebody will take it over");
        knows = MemberLease { member: None, ..member("a", "r", 6) };
        observed.members(vec![knows], start);
        assert_eq!(observed.orphans(start, 9), [], "no one can know");
    }

    #[test]
    fn the_claims_of_a_daemon_that_restarts_wait_for_it_for_a_while() {
        let (start, own) = (Instant::now(), session("a", "r"));
        let mut observed = pair(start);
        let restarted = [member("a", "r", 1), member("b", "new", 4)];
        observed.members(restarted.to_vec(), start);
        let fleet = observed.fleet(Some(&session("b", "new")), start);
        assert!(fleet.claims["x"].holder == "b" && !fleet.claims["x"].is_current);
        assert_eq!(observed.standing("x", &own, start), ClaimStanding::Taken);
        let free = ClaimStanding::Free(Some(version("x", 3)));
        assert_eq!(observed.standing("x", &session("b", "new"), start), free);
        // The wait is from the first look, not from the last one.
        observed.members(restarted.to_vec(), start + TTL / 2);
        assert_eq!(observed.standing("x", &own, start + TTL), free);
        // Another state directory makes it another daemon.
        let mut other = member("b", "r", 5);
        other.session = LeaseSession::new(
            &Member { name: "b".to_owned(), id: "2".to_owned(), ..Member::default() },
            "r",
        );
        observed.members(vec![other], start);
        assert_eq!(observed.standing("x", &own, start), free);
    }

    #[test]
    fn a_watch_tells_renewals_and_its_own_echo_from_changes() {
        let now = Instant::now();
        let mut observed = pair(now);
        let mut change = |object, is_deletion| observed.change(object, is_deletion, now);
        assert!(!change(Object::Member(member("b", "r", 9)), false));
        assert!(!change(Object::Claim(claim("x", "b", "r", 9)), false));
        assert!(change(Object::Claim(claim("x", "a", "r", 10)), false));
        assert!(change(Object::Claim(claim("x", "a", "r", 11)), true));
        assert!(!change(Object::Claim(claim("x", "a", "r", 11)), true));
        assert!(change(Object::Member(member("b", "new", 12)), false));
        let mut drains = member("b", "new", 13);
        drains.member.as_mut().expect("described").draining = true;
        assert!(change(Object::Member(drains), false));
        assert!(change(Object::Member(member("c", "r", 14)), false));
        assert!(change(Object::Member(member("c", "r", 15)), true));
    }
}

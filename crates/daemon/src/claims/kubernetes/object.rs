//! Members and claims as Lease objects (coordination.k8s.io/v1), and back. Pure.
//!
//! Only a member's Lease is renewed. A claim's Lease names the session that holds it, and is worth as much as
//! that session's Lease.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use sha1::{Digest as _, Sha1};

use super::super::engine::Member;

/// Label with the fleet's prefix.
pub(super) const FLEET: &str = "csa-daemon.internal/fleet";
/// Label that tells members from claims.
pub(super) const KIND: &str = "csa-daemon.internal/kind";
pub(super) const MEMBER: &str = "member";
const CLAIM: &str = "claim";
/// Annotation with a member's description.
const DESCRIPTION: &str = "csa-daemon.internal/member";
/// Annotation with the name that the object's name is made from: a channel's, or a daemon's.
const SUBJECT: &str = "csa-daemon.internal/name";
/// Of a name, as far as it can be read in an object's name; with the fleet's prefix (40) and the rest far below
/// the limit of 253.
const READABLE: usize = 80;

/// A session: `NAME/ID/RANDOM`, as it stands in `holderIdentity`. Never used again once it has ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LeaseSession(String);

impl LeaseSession {
    /// Returns a new one of this member.
    pub(super) fn new(member: &Member, random: &str) -> Self {
        Self(format!("{}/{}/{random}", member.name, member.id))
    }

    /// Returns the daemon's name: the part before the first slash, because names have none. The
    /// part before the first slash: names have none.
    pub(super) fn name(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }

    /// The same for all sessions of one state directory: `NAME/ID`.
    pub(super) fn identity(&self) -> &str {
        self.0.rsplit_once('/').map_or(&self.0, |(identity, _)| identity)
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// One version of one object; a write or deletion that names it fails once there is a newer one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) object: String,
    pub(super) uid: String,
    pub(super) number: String,
}

impl Version {
    /// Returns the body of a deletion of this version and no other.
    pub(super) fn deletion(&self) -> Value {
        json!({ "preconditions": { "uid": self.uid, "resourceVersion": self.number } })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MemberLease {
    pub(super) version: Version,
    pub(super) session: LeaseSession,
    /// Name of the daemon, as the annotation has it.
    pub(super) name: String,
    /// Seconds that the session lasts without a renewal.
    pub(super) seconds: u64,
    /// `None` if this version of the program can't read it.
    pub(super) member: Option<Member>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClaimLease {
    pub(super) version: Version,
    pub(super) session: LeaseSession,
    pub(super) channel: String,
}

/// An object of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Object {
    Member(MemberLease),
    Claim(ClaimLease),
}

#[derive(Debug, Deserialize)]
struct Lease {
    metadata: LeaseMetadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaseMetadata {
    name: String,
    uid: String,
    resource_version: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u64>,
}

/// An object as the API server shows it.
///
/// # Errors
/// It is no Lease of a fleet.
pub(super) fn read(value: &Value) -> Result<Object, String> {
    let Lease { metadata, spec } = Lease::deserialize(value).map_err(|error| error.to_string())?;
    let LeaseMetadata { name: object, uid, resource_version, labels, mut annotations } = metadata;
    let missing = |what: &str| format!("Lease {object}: it has no {what}");
    let subject = annotations.remove(SUBJECT).ok_or_else(|| missing(SUBJECT))?;
    let session = LeaseSession(spec.holder_identity.unwrap_or_default());
    match labels.get(KIND).map(String::as_str) {
        Some(MEMBER) => {
            let description = annotations.get(DESCRIPTION);
            let member = description.and_then(|text| serde_json::from_str(text).ok());
            let seconds =
                spec.lease_duration_seconds.ok_or_else(|| missing("leaseDurationSeconds"))?;
            let version = Version { object, uid, number: resource_version };
            Ok(Object::Member(MemberLease { version, session, name: subject, seconds, member }))
        }
        Some(CLAIM) => {
            let version = Version { object, uid, number: resource_version };
            Ok(Object::Claim(ClaimLease { version, session, channel: subject }))
        }
        _ => Err(missing(KIND)),
    }
}

/// The fleet's share of a namespace.
#[derive(Debug, Clone)]
pub(super) struct ObjectNames {
    pub(super) prefix: String,
}

impl ObjectNames {
    pub(super) fn member(&self, name: &str) -> String {
        self.object(MEMBER, name)
    }

    pub(super) fn claim(&self, channel: &str) -> String {
        self.object(CLAIM, channel)
    }

    /// A name that Kubernetes permits (RFC 1123), from one that it may not: what can be read of it, and a digest
    /// of all.
    fn object(&self, kind: &str, subject: &str) -> String {
        let readable = |character: char| match character.to_ascii_lowercase() {
            character @ ('a'..='z' | '0'..='9') => character,
            _ => '-',
        };
        let readable: String = subject.chars().take(READABLE).map(readable).collect();
        let digest = Sha1::digest(subject.as_bytes());
        let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{kind}-{readable}-{digest}", self.prefix)
    }

    /// A member's Lease to be written; `now` is for people.
    pub(super) fn member_lease(
        &self,
        member: &Member,
        session: &LeaseSession,
        seconds: u64,
        now: &str,
        over: Option<&Version>,
    ) -> Value {
        let description = serde_json::to_string(member).unwrap_or_default();
        let mut lease = self.lease(MEMBER, &member.name, session, over);
        lease["metadata"]["annotations"][DESCRIPTION] = description.into();
        lease["spec"]["leaseDurationSeconds"] = seconds.into();
        lease["spec"]["renewTime"] = now.into();
        lease
    }

    /// Returns a claim's Lease to be written.
    pub(super) fn claim_lease(
        &self,
        channel: &str,
        session: &LeaseSession,
        now: &str,
        over: Option<&Version>,
    ) -> Value {
        let mut lease = self.lease(CLAIM, channel, session, over);
        lease["spec"]["acquireTime"] = now.into();
        lease
    }

    fn lease(
        &self,
        kind: &str,
        subject: &str,
        session: &LeaseSession,
        over: Option<&Version>,
    ) -> Value {
        let mut lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self.object(kind, subject),
                "labels": {
                    "app.kubernetes.io/managed-by": "csa-daemon",
                    (FLEET): self.prefix,
                    (KIND): kind,
                },
                "annotations": { (SUBJECT): subject },
            },
            "spec": { "holderIdentity": session.as_str() },
        });
        if let Some(over) = over {
            lease["metadata"]["uid"] = over.uid.as_str().into();
            lease["metadata"]["resourceVersion"] = over.number.as_str().into();
        }
        lease
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> ObjectNames {
        ObjectNames { prefix: "fleet".to_owned() }
    }

    #[test]
    fn every_name_makes_an_object_name_of_its_own() {
        let long = "x".repeat(300);
        let odd = ["a", "A", "_a", "-a-", "a.", "a..b", "ä", "a b", "", "a/b", "a_b", "a-b", &long];
        let mut seen = BTreeMap::new();
        for subject in odd {
            let object = names().claim(subject);
            assert!(object.len() <= 253, "{object}");
            // RFC 1123: these characters, with a letter or digit at each end.
            let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            assert!(object.bytes().all(|byte| known(byte) || byte == b'-'), "{object}");
            assert!(!object.starts_with('-') && !object.ends_with('-'), "{object}");
            assert_ne!(object, names().member(subject));
            assert_eq!(seen.insert(object.clone(), subject), None, "{object}");
        }
    }

    #[test]
    fn an_object_is_read_as_it_was_written() {
        let member = Member {
            name: "db_7".to_owned(),
            id: "uuid@host".to_owned(),
            weight: 7,
            draining: true,
            channels: ["a\"b".to_owned(), "_".to_owned()].into(),
        };
        let session = LeaseSession::new(&member, "r");
        assert_eq!((session.name(), session.identity()), ("db_7", "db_7/uuid@host"));
        let version = Version {
            object: names().member("db_7"),
            uid: "u".to_owned(),
            number: "17".to_owned(),
        };
        let written = names().member_lease(&member, &session, 15, "now", Some(&version));
        let Ok(Object::Member(lease)) = read(&written) else { panic!("{written}") };
        assert_eq!(lease.version, version);
        assert_eq!(
            (lease.session, lease.seconds, lease.name),
            (session.clone(), 15, member.name.clone())
        );
        assert_eq!(lease.member, Some(member));

        let mut written = names().claim_lease("_x", &session, "now", None);
        assert!(read(&written).is_err(), "not stored yet: it has no version");
        written["metadata"]["uid"] = "u".into();
        written["metadata"]["resourceVersion"] = "18".into();
        let Ok(Object::Claim(claim)) = read(&written) else { panic!("{written}") };
        assert_eq!((claim.channel.as_str(), &claim.session), ("_x", &session));
        written["metadata"]["labels"] = json!({});
        assert!(read(&written).is_err_and(|why| why.contains(KIND)));
    }
}

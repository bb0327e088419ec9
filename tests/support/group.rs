//! A group of three servers (Group Replication, single-primary), started by `tests/sandbox/mysql-group`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::server::{LEAN, folder, run_script, unique};
use crate::{Server, scratch};

/// Time that a change of members or of the primary may take: a member that is killed is suspected after 5 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// Running servers that are members of one group; deleted when dropped.
#[derive(Debug)]
pub struct Group {
    /// The first one begins as the primary.
    pub members: Vec<Server>,
}

impl Group {
    /// Starts a group with the options added to the sandbox's own.
    ///
    /// # Panics
    /// With the script's message when it does not start.
    #[track_caller]
    #[must_use]
    pub fn start(name: &str, options: &[&str]) -> Self {
        let (name, folder) = (unique(name), folder(&scratch::folder()));
        let mut arguments = vec!["start", &name, "--"];
        arguments.extend(LEAN);
        arguments.extend(options);
        let output = run_script(&Self::script_path(), &folder, &arguments).unwrap_or_else(|why| {
            // Remove the remains; there may be none.
            let _ = run_script(&Self::script_path(), &folder, &["destroy", &name]);
            panic!("{why}")
        });
        let members = output.split("NAME=").skip(1);
        let members =
            members.map(|block| Server::of_output(&format!("NAME={block}"), folder.clone()));
        let mut members: Vec<Server> = members.collect();
        members.sort_by(|one, other| one.name.cmp(&other.name));
        Self { members }
    }

    fn script_path() -> PathBuf {
        Server::script_path().with_file_name("mysql-group")
    }

    #[track_caller]
    fn script(&self, command: &str, member: &Server) {
        let folder = member.data_directory().ancestors().nth(2).unwrap_or(Path::new("/"));
        if let Err(why) = run_script(&Self::script_path(), folder, &[command, &member.name]) {
            panic!("{why}");
        }
    }

    /// Lets a running member join again.
    ///
    /// # Panics
    /// If it can't.
    #[track_caller]
    pub fn join(&self, member: &Server) {
        self.script("join", member);
    }

    /// Lets a member leave.
    ///
    /// # Panics
    /// If it can't.
    #[track_caller]
    pub fn leave(&self, member: &Server) {
        self.script("leave", member);
    }

    /// Makes a member the primary.
    ///
    /// # Panics
    /// If it can't become that.
    #[track_caller]
    pub fn make_primary(&self, member: &Server) {
        self.script("primary", member);
    }

    /// Waits for a primary that serves, other than `but`.
    ///
    /// # Panics
    /// If there is none in time.
    pub async fn primary(&self, but: Option<&Server>) -> &Server {
        let begun = Instant::now();
        loop {
            for member in
                self.members.iter().filter(|one| but.is_none_or(|but| but.port != one.port))
            {
                let Ok(mut session) = mysql_async::Conn::new(member.opts()).await else { continue };
                let query = "SELECT MEMBER_STATE = 'ONLINE' AND MEMBER_ROLE = 'PRIMARY' AND \
                     NOT @@GLOBAL.super_read_only FROM performance_schema.replication_group_members \
                     WHERE MEMBER_ID = @@GLOBAL.server_uuid";
                let asked = mysql_async::prelude::Queryable::query_first(&mut session, query).await;
                if let Ok(Some(true)) = asked {
                    return member;
                }
            }
            assert!(begun.elapsed() < PATIENCE, "no primary");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

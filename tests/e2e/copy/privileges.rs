//! A first start that copies, with the accounts that the package's scripts make.

use csa_tests::{Daemon, Server, prepare};

use super::{busy, follows_and_is_equal};

#[tokio::test(flavor = "multi_thread")]
async fn a_check_names_what_the_first_copy_may_not_see() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &csa_tests::LoadOptions { rows: 100, ..busy() }).await;
    source.exec("CREATE VIEW sbtest.seen AS SELECT id FROM sbtest.sbtest1").await;
    let account = "SET sql_log_bin=0; DROP USER 'repl'@'%'";
    source.exec(account).await;
    source
        .exec(
            "SET sql_log_bin=0; CREATE USER 'repl'@'%' IDENTIFIED BY 'change me'; \
             GRANT REPLICATION SLAVE ON *.* TO 'repl'@'%'",
        )
        .await;
    let daemon = Daemon::builder(&source, &target)
        .set("source.user", "repl")
        .set("source.password", "change me")
        .set("applier.start_from", "copy")
        .build();
    let check = || tokio::task::block_in_place(|| daemon.command(&["check", "--connect"]));
    // A start with too few privileges would be tried again after half a minute; a check says all at once.
    let fix = "GRANT SELECT, REPLICATION CLIENT, EVENT, SHOW VIEW, TRIGGER ON *.* TO 'repl'@'%'";
    let mut said = check();
    assert!(said.code == Some(2) && said.out.contains("source.copy_privileges"), "{said:?}");
    assert!(said.out.contains(fix), "{said:?}");
    source.exec("SET sql_log_bin=0; GRANT SELECT ON *.* TO 'repl'@'%'").await;
    said = check();
    let rest = fix.replace("SELECT, ", "");
    assert!(said.code == Some(2) && said.out.contains(&rest), "{said:?}");

    // The copy's own refusal has the same statement.
    let copied = tokio::task::block_in_place(|| daemon.command(&["copy"]));
    assert!(copied.code == Some(1) && copied.error.contains(&rest), "{copied:?}");

    source.exec(account).await;
    source.exec(include_str!("../../../config/grants-source.sql")).await;
    said = check();
    assert!(said.code == Some(0) && said.out.contains("'repl'@'%' may copy"), "{said:?}");
    follows_and_is_equal(&daemon, &source, &target).await;
}

//! The target of one daemon is the source of another.

use csa_tests::{Compare, Daemon, Server};

use super::run;
use crate::DRAIN;

/// The first daemon's checkpoints are in the second one's stream: the second must not take them for
/// its own, whatever else their transaction holds.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_chain_of_two_daemons() {
    let (source, middle) = Server::pair(&[], &[]);
    let last = Server::start("last", &[]);
    let first = Daemon::builder(&source, &middle).set("applier.worker_count", 4).start();
    let second = Daemon::builder(&middle, &last).set("applier.worker_count", 4).start();
    source.exec("CREATE DATABASE c").await;
    for round in 0..5 {
        run(
            &source,
            [
                format!("CREATE TABLE keyed{round} (id INT PRIMARY KEY, b LONGBLOB)"),
                format!("CREATE TABLE keyless{round} (a INT)"),
                format!("INSERT INTO keyed{round} VALUES (1,'a'),(2,'b')"),
                format!("INSERT INTO keyless{round} VALUES (1),(1)"),
                format!("DELETE FROM keyless{round} LIMIT 1"),
                // Too large to be held as a whole.
                format!("INSERT INTO keyed{round} VALUES (3,REPEAT('c',9000000))"),
            ],
        )
        .await;
        first.wait_drained(&source, &middle, DRAIN).await;
        second.wait_drained(&middle, &last, DRAIN).await;
        for server in [&middle, &last] {
            let compared = Compare::new().run(&source, server).await;
            let compared = compared.unwrap_or_else(|difference| panic!("{difference}"));
            assert_eq!(compared.rows, (round + 1) * 4);
        }
        if round == 2 {
            second.kill9();
            second.start_again();
        }
    }
    // The bookkeeping of the middle server concerns that server alone.
    assert!(first.terminate().success());
    middle.exec("DROP SCHEMA csa; INSERT INTO c.keyed0 VALUES (9, 'after')").await;
    middle.exec("CREATE SCHEMA csa; CREATE TABLE csa.checkpoint (other INT)").await;
    second.wait_drained(&middle, &last, DRAIN).await;
    let compared = Compare::new().run(&middle, &last).await;
    compared.unwrap_or_else(|difference| panic!("{difference}"));
    let left_out = &second.status()["channels"][0]["applier"]["own_left_out_total"];
    assert!(left_out.as_u64() >= Some(3), "{left_out}");
    second.kill9();
    second.start_again();
    middle.exec("INSERT INTO c.keyed0 VALUES (10, 'resumed')").await;
    second.wait_drained(&middle, &last, DRAIN).await;
    let compared = Compare::new().run(&middle, &last).await;
    compared.unwrap_or_else(|difference| panic!("{difference}"));
}

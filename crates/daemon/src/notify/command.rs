//! A command that takes events: one process for each.

use csa_provider::server::visible::one_line;

use super::event::Event;
use crate::host::{Output, run_program};

/// Letters of the text in the environment.
const TEXT_MAX: usize = 1000;

/// Runs the command until its end; if this is dropped, the command is killed.
pub(super) async fn run(arguments: &[String], event: &Event) -> Result<(), String> {
    let input = event.json().to_string();
    run_program(arguments, variables(event), input.as_bytes(), Output::Ignored).await.map(drop)
}

/// Returns the event for commands that read no JSON.
fn variables(event: &Event) -> [(&'static str, String); 6] {
    // No zero byte, which would end a variable, and no newline.
    let plain = |text: &str| -> String { one_line(text).chars().take(TEXT_MAX).collect() };
    [
        ("CSA_EVENT", event.event.clone()),
        ("CSA_EVENT_ID", event.id.clone()),
        ("CSA_CHANNEL", event.channel.clone()),
        ("CSA_STATE", event.state.clone()),
        ("CSA_TIME", event.time.clone()),
        ("CSA_TEXT", plain(&event.text)),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::event::Origin;
    use super::*;

    fn event() -> Event {
        let origin = Origin { id: "7".to_owned(), at: 0, host: "h".to_owned() };
        Event { text: "two\nlines\0".to_owned(), ..Event::test("orders", origin) }
    }

    async fn sh(script: &str) -> Result<(), String> {
        run(&["/bin/sh", "-c", script].map(str::to_owned), &event()).await
    }

    #[tokio::test]
    async fn a_command_gets_the_event_and_its_failure_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("event").display().to_string();
        let script = format!(
            "cat > {path}; [ \"$CSA_EVENT $CSA_CHANNEL $CSA_EVENT_ID\" = 'test orders 7' ] && [ -z \"$CARGO\" ]"
        );
        assert_eq!(sh(&script).await, Ok(()));
        let read = std::fs::read_to_string(&path).expect("written");
        let read: serde_json::Value = serde_json::from_str(&read).expect("JSON");
        assert_eq!(read["channel"], "orders");
        let failed = sh("echo 'no route' >&2; exit 3").await.expect_err("failed");
        assert!(failed.contains("exit status: 3: no route"), "{failed}");
        // Output without end, and a child that keeps the pipe.
        let flooded = sh("sleep 1 >&2 & yes | head -c 3000000 >&2; exit 1").await;
        assert!(flooded.is_err_and(|why| why.len() < 1000));
        let missing = run(&["/not/there".to_owned()], &event()).await.expect_err("missing");
        assert!(missing.contains("can't be started"), "{missing}");
    }

    #[tokio::test]
    async fn a_command_that_does_not_end_is_killed_with_its_children() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pid").display().to_string();
        let script = format!("sleep 1000 & echo $! > {path}; wait");
        let limit = Duration::from_millis(500);
        assert!(tokio::time::timeout(limit, sh(&script)).await.is_err());
        let pid = std::fs::read_to_string(&path).expect("written");
        let ended = async {
            while std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
                .is_ok_and(|stat| !stat.contains(") Z "))
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), ended).await.expect("its child is gone");
    }
}

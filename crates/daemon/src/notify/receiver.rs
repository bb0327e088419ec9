//! One attempt to deliver an event.

use super::event::Event;
use super::{command, webhook};
use crate::config::{Notify, Receiver, program};

/// Delivers an event within the time limit of an attempt. May be dropped anywhere: a command is killed then.
///
/// # Errors
/// One line with the reason; whether the receiver has taken the event is not known.
pub(crate) async fn deliver(notify: &Notify, event: &Event) -> Result<(), String> {
    let attempt = async {
        match &notify.receiver {
            Receiver::None => Ok(()),
            Receiver::Command(arguments) => command::run(arguments, event).await,
            Receiver::Webhook(hook) => webhook::post(hook, event).await,
        }
    };
    match tokio::time::timeout(notify.timeout, attempt).await {
        Ok(delivered) => delivered,
        Err(_) => Err(format!("{}: no end within {:?}", name_of(notify), notify.timeout)),
    }
}

/// Returns the receiver for a sentence, without what is secret in its address.
pub(crate) fn name_of(notify: &Notify) -> String {
    match &notify.receiver {
        Receiver::None => "nobody".to_owned(),
        Receiver::Command(arguments) => program(arguments).to_owned(),
        Receiver::Webhook(hook) => hook.server.clone(),
    }
}

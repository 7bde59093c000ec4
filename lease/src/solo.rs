//! The dummy elector: a single process without a Lease leads for ever, in epoch 0. It makes standalone a configuration
//! of the caller, not a branch.

use crate::{
    elector::{Command, Event},
    time::Instant,
};
use tokio::sync::mpsc;

/// Elects the caller at once, with a permit without end, and carries out a resignation for anyone. Returns after that,
/// or when the sender of the commands is gone.
pub async fn run(mut commands: mpsc::UnboundedReceiver<Command>, mut on_event: impl FnMut(Event)) {
    on_event(Event::Elected { epoch: 0, kept: false, previous_read_lease_ttl: None });
    on_event(Event::Permit { epoch: 0, until: Instant::MAX });
    while let Some(command) = commands.recv().await {
        if command == (Command::Resign { successor: None }) {
            on_event(Event::PermitEnded);
            on_event(Event::Released);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn leads_until_it_resigns() {
        let (sender, commands) = mpsc::unbounded_channel();
        sender.send(Command::MayClaim(true)).unwrap();
        sender.send(Command::Resign { successor: None }).unwrap();
        let mut events = Vec::new();
        run(commands, |event| events.push(event)).await;
        assert_eq!(events.len(), 4);
        assert_eq!(events[1], Event::Permit { epoch: 0, until: Instant::MAX });
        assert_eq!(events[3], Event::Released);
    }
}

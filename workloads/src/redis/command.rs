//! The commands that fencepost sends, and the scripts among them.
//!
//! Scripts go by `EVAL`, text and all: `EVALSHA` would add an answer (`NOSCRIPT`) after which a client has to
//! send again.

use super::errors::Effect;
use super::resp;

/// A command that is ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    /// What messages call it.
    pub(super) name: &'static str,
    /// What it does to the server's data.
    pub(super) effect: Effect,
    words: Vec<Vec<u8>>,
}

/// A Lua script and what messages call it.
pub(crate) struct Script {
    name: &'static str,
    text: &'static str,
}

/// Takes the lock if nobody holds it and counts the grant: 1 and up, or nothing. The number is a fencing token as
/// long as the counter is as durable as the lock.
pub(crate) const ACQUIRE_WITH_TOKEN: Script = Script {
    name: "EVAL acquire",
    text: "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
           return redis.call('incr', KEYS[2]) else return false end",
};

/// Deletes the lock if it is still ours (redis.io, "Distributed Locks with Redis"; GitLab's
/// `LUA_CANCEL_SCRIPT` in `lib/gitlab/exclusive_lease.rb` is the same).
pub(crate) const RELEASE: Script = Script {
    name: "EVAL release",
    text: "if redis.call('get', KEYS[1]) == ARGV[1] then \
           return redis.call('del', KEYS[1]) else return 0 end",
};

/// Renews the lock for some milliseconds if it is still ours.
pub(crate) const RENEW: Script = Script {
    name: "EVAL renew",
    text: "if redis.call('get', KEYS[1]) == ARGV[1] then \
           return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end",
};

/// The same for whole seconds (GitLab's `LUA_RENEW_SCRIPT`).
pub(crate) const RENEW_SECONDS: Script = Script {
    name: "EVAL renew",
    text: "if redis.call('get', KEYS[1]) == ARGV[1] then \
           return redis.call('expire', KEYS[1], ARGV[2]) else return 0 end",
};

/// Replaces a register and returns its new version.
pub(crate) const WRITE: Script = Script {
    name: "EVAL write",
    text: "redis.call('hset', KEYS[1], 'elements', ARGV[1]) \
           return redis.call('hincrby', KEYS[1], 'version', 1)",
};

/// The same, but only while the lock's key holds the writer's value; nothing otherwise.
pub(crate) const GUARDED_WRITE: Script = Script {
    name: "EVAL guarded write",
    text: "if redis.call('get', KEYS[2]) ~= ARGV[2] then return false end \
           redis.call('hset', KEYS[1], 'elements', ARGV[1]) \
           return redis.call('hincrby', KEYS[1], 'version', 1)",
};

impl Command {
    /// A command that changes nothing.
    pub(crate) fn read(name: &'static str, words: &[&str]) -> Self {
        Self::of(name, Effect::None, words)
    }

    /// A command that changes something.
    pub(crate) fn write(name: &'static str, words: &[&str]) -> Self {
        Self::of(name, Effect::One, words)
    }

    /// A script with its keys and arguments.
    pub(crate) fn script(script: &Script, keys: &[&str], arguments: &[&str]) -> Self {
        let count = keys.len().to_string();
        let words: Vec<&str> = ["EVAL", script.text, &count]
            .into_iter()
            .chain(keys.iter().copied())
            .chain(arguments.iter().copied())
            .collect();
        Self::of(script.name, Effect::Several, &words)
    }

    fn of(name: &'static str, effect: Effect, words: &[&str]) -> Self {
        let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        Self {
            name,
            effect,
            words,
        }
    }

    /// As it goes over the wire.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        resp::encode(self.words.iter().map(Vec::as_slice), &mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_names_the_number_of_its_keys() {
        let command = Command::script(&RELEASE, &["k"], &["v"]);
        let bytes = String::from_utf8(command.bytes()).expect("text");
        assert!(bytes.starts_with("*5\r\n$4\r\nEVAL\r\n"), "{bytes}");
        assert!(
            bytes.ends_with("\r\n$1\r\n1\r\n$1\r\nk\r\n$1\r\nv\r\n"),
            "{bytes}"
        );
        assert_eq!(command.effect, Effect::Several);
    }
}

//! What faults on links need of the network, whatever it is made of.

use crate::mechanism::switch::{
    Installed, Removed, Rule, RuleCounters, RuleId, Switch, SwitchError,
};

/// A network whose directed links can be cut and made worse.
pub trait Links: Send + Sync {
    /// What it is made of, for receipts.
    fn name(&self) -> &'static str;

    /// Puts a rule in force, and returns when every later frame is subject to it.
    ///
    /// # Errors
    /// As for [`Switch::install`]; also when this network cannot do that.
    fn install(&self, rule: &Rule) -> Result<Installed, SwitchError>;

    /// Takes a rule away, and returns when no later frame is subject to it. `None` when there is none.
    ///
    /// # Errors
    /// As for [`Switch::remove`].
    fn remove(&self, id: RuleId) -> Result<Option<Removed>, SwitchError>;

    /// What a rule has done so far; `None` when there is none.
    ///
    /// # Errors
    /// The network does not work any more.
    fn look(&self, id: RuleId) -> Result<Option<RuleCounters>, SwitchError>;

    /// Says so if the network does not work any more.
    ///
    /// # Errors
    /// Why it does not.
    fn check(&self) -> Result<(), SwitchError>;
}

impl Links for Switch {
    fn name(&self) -> &'static str {
        "userspace switch"
    }

    fn install(&self, rule: &Rule) -> Result<Installed, SwitchError> {
        Self::install(self, rule)
    }

    fn remove(&self, id: RuleId) -> Result<Option<Removed>, SwitchError> {
        Self::remove(self, id)
    }

    fn look(&self, id: RuleId) -> Result<Option<RuleCounters>, SwitchError> {
        Self::look(self, id)
    }

    fn check(&self) -> Result<(), SwitchError> {
        Self::check(self)
    }
}

//! From the tables of one arm to its plan, one file a table.
//!
//! Each function reads its table and checks what its values mean together and with the tables read
//! before it. A `None` has always been reported. No name of a backend, lock, resource, workload or
//! fault occurs here.

pub(super) mod cluster;
pub(super) mod fault;
pub(super) mod nemesis;
pub(super) mod options;
mod params;
pub(super) mod when;
pub(super) mod workload;

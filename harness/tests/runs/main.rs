//! Whole runs through the real binary: scenarios, mistakes, interruptions, kills.
//!
//! As root every run that needs a sandbox is done twice, the second time as an ordinary user. Where the
//! machine allows no sandbox, or a server cannot be had, a test says so and does nothing.

mod accidents;
mod bench;
mod builtin;
mod clock;
mod consul;
mod disk;
mod etcd;
mod kill;
mod mistakes;
mod nemesis;
mod network;
mod redis;
mod replay;
mod workers;
mod zookeeper;

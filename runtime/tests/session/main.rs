//! Sessions, by their rules and on a network that loses, delays, doubles and reorders what it can.

mod network;
mod reset;
mod rules;

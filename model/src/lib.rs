//! The protocol in both scopes as a checked model: every order of events within bounds, with stateright.
//!
//! All decisions are the product's own (`leasehold::decide`); the model has the store's conditional writes and everything that can happen
//! around them.
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`protocol`] | the model: what may happen next, and what it leads to |
//! | [`state`], [`store`] | one state; rows, sessions, and the conditional writes |
//! | [`worker`], [`functions`] | what workers and functions do, step by step |
//! | [`requests`], [`environment`] | requests under way; time, people, faults |
//! | [`properties`], [`calm`] | what must hold; what follows when faults stop |
//! | [`bounds`], [`repairs`] | what may happen and how often; what can be taken out |
//! | [`check`] | runs the checker |
//! | [`product`], [`numbers`] | the product's types; time |

pub mod bounds;
pub mod calm;
pub mod check;
pub mod environment;
pub mod functions;
pub mod numbers;
pub mod product;
pub mod properties;
pub mod protocol;
pub mod repairs;
pub mod requests;
pub mod state;
pub mod store;
pub mod worker;

//! Lease time from the Date header of every answer.

use crate::clock::SharedClock;
use crate::decide::lease_time::{LeaseTime, Now};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::{
    BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::{ConfigBag, Storable, StoreReplace};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

/// The shared estimate of lease time: the client writes it with each answer, everybody reads it.
#[derive(Clone, Debug)]
pub struct LeaseClock {
    clock: SharedClock,
    time: Arc<Mutex<LeaseTime>>,
}

impl LeaseClock {
    /// An estimate that knows nothing yet.
    #[must_use]
    pub fn new(clock: SharedClock) -> Self {
        Self { clock, time: Arc::default() }
    }

    /// Bounds of DynamoDB's clock now; `None` before the first answer.
    #[must_use]
    pub fn now(&self) -> Option<Now> {
        let mono_ms = self.clock.mono_ms();
        self.time.lock().unwrap_or_else(PoisonError::into_inner).now(mono_ms)
    }

    /// How far the machine's own clock is off, in ms: 0 while it is inside the bounds. Reported only.
    #[must_use]
    pub fn skew_ms(&self) -> i64 {
        let Some(now) = self.now() else { return 0 };
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let wall = signed(self.clock.wall_ms());
        if wall < signed(now.lower_ms) { wall - signed(now.lower_ms) } else { (wall - signed(now.upper_ms)).max(0) }
    }

    /// The process's clocks.
    #[must_use]
    pub fn clock(&self) -> &SharedClock {
        &self.clock
    }

    fn observe(&self, sent_ms: u64, date: &str) {
        let Some(seconds) = httpdate::parse_http_date(date).ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok())
        else {
            return;
        };
        let received_ms = self.clock.mono_ms();
        let mut time = self.time.lock().unwrap_or_else(PoisonError::into_inner);
        if !time.observe(sent_ms, received_ms, seconds.as_secs()) {
            tracing::warn!(
                event = "lease_time_contradiction",
                date,
                "an answer's Date contradicts lease time and is discarded"
            );
        }
    }
}

/// When an attempt was sent, on the monotonic clock.
#[derive(Debug)]
struct SentAt(u64);

impl Storable for SentAt {
    type Storer = StoreReplace<Self>;
}

/// Notes when each attempt is sent, and reads the Date of its answer. Each retry of the SDK is an attempt of its own.
#[derive(Debug)]
pub struct DateInterceptor(pub LeaseClock);

impl Intercept for DateInterceptor {
    fn name(&self) -> &'static str {
        "LeaseTimeFromDate"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        cfg.interceptor_state().store_put(SentAt(self.0.clock.mono_ms()));
        Ok(())
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let (Some(sent), Some(date)) = (cfg.load::<SentAt>(), context.response().headers().get("date")) {
            self.0.observe(sent.0, date);
        }
        Ok(())
    }
}

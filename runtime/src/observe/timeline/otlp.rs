//! A timeline as OpenTelemetry takes it: the JSON form of an OTLP export request
//! (<https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>).

use serde_json::{Value, json};

use super::chrome::short;
use super::record::Timeline;

// As `opentelemetry.proto.trace.v1` numbers them.
const KIND_SERVER: u8 = 2;
const KIND_CLIENT: u8 = 3;
const STATUS_ERROR: u8 = 2;

impl Timeline {
    /// As a JSON text: the body of a POST to a collector's `/v1/traces`.
    pub fn to_otlp(&self) -> String {
        let (clock, unix) = self.anchor;
        let resources = self.recorded().map(|(process, recorded)| {
            // 64-bit integers are texts in this form.
            let at = |time: u64| (unix as i64 + process.at(time) - clock as i64).to_string();
            let handlers = recorded.handlers.iter().map(|h| {
                let mut attributes = vec![
                    text("corehold.actor", &self.name_of(h.actor)),
                    text("corehold.actor_id", &h.actor.to_string()),
                    text("corehold.message", &h.message),
                ];
                if let Some(caller) = h.caller {
                    attributes.push(text("corehold.caller", &self.name_of(caller)));
                }
                let status = match h.panicked {
                    true => json!({ "code": STATUS_ERROR, "message": "panic" }),
                    false => json!({}),
                };
                json!({
                    "traceId": format!("{:032x}", h.context.trace_id),
                    "spanId": format!("{:016x}", h.context.span_id),
                    "parentSpanId": h.parent.map_or(String::new(), |p| format!("{p:016x}")),
                    "name": format!("{} {}", short(&h.actor_type), short(&h.message)),
                    "kind": KIND_SERVER,
                    "startTimeUnixNano": at(h.begin_ns),
                    "endTimeUnixNano": at(h.end_ns),
                    "attributes": attributes,
                    "status": status,
                })
            });
            let asks = recorded.asks.iter().map(|a| {
                let status = match &a.failed {
                    Some(kind) => json!({ "code": STATUS_ERROR, "message": kind }),
                    None => json!({}),
                };
                json!({
                    "traceId": format!("{:032x}", a.context.trace_id),
                    "spanId": format!("{:016x}", a.context.span_id),
                    "parentSpanId": a.parent.map_or(String::new(), |p| format!("{p:016x}")),
                    "name": format!("ask {}", short(&a.message)),
                    "kind": KIND_CLIENT,
                    "startTimeUnixNano": at(a.begin_ns),
                    "endTimeUnixNano": at(a.end_ns),
                    "attributes": [text("corehold.asked", &self.name_of(a.asked))],
                    "status": status,
                })
            });
            let spans: Vec<Value> = handlers.chain(asks).collect();
            json!({
                "resource": { "attributes": [
                    text("service.name", "corehold"),
                    text("service.instance.id", &process.who),
                ] },
                "scopeSpans": [{ "scope": { "name": "corehold" }, "spans": spans }],
            })
        });
        json!({ "resourceSpans": resources.collect::<Vec<_>>() }).to_string()
    }
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

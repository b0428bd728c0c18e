//! GPUs: found by NVIDIA's management library, and shown to worker processes.

use nvml_wrapper::Nvml;

use crate::cluster::Gpu;

/// The GPUs of this machine, by the driver's numbers. None where there is no NVIDIA driver; one that does not
/// answer is left out and told of in the log.
pub fn find() -> Vec<Gpu> {
    // The library is loaded when this is called: a program needs none to run.
    let nvml = match Nvml::init() {
        Ok(nvml) => nvml,
        Err(e) => {
            tracing::debug!(error = %e, "no GPUs: NVIDIA's management library can't be used");
            return Vec::new();
        }
    };
    let count = nvml.device_count().unwrap_or_else(|e| {
        tracing::warn!(error = %e, "the GPUs can't be counted");
        0
    });
    let look = |index| {
        let device = nvml.device_by_index(index)?;
        Ok::<_, nvml_wrapper::error::NvmlError>(Gpu {
            index,
            model: device.name()?,
            memory: device.memory_info()?.total,
        })
    };
    let found = (0..count).filter_map(|index| {
        look(index)
            .inspect_err(|e| tracing::warn!(index, error = %e, "a GPU does not answer: left out"))
            .ok()
    });
    found.collect()
}

/// The environment that shows a worker process the GPUs that its actor was given, and no others. Nothing is set on
/// a node without GPUs (`on_node_with_gpus` false): there, the environment stays as it is.
pub fn environment(given: &[u32], on_node_with_gpus: bool) -> Vec<(&'static str, String)> {
    if !on_node_with_gpus {
        return Vec::new();
    }
    let numbers: Vec<String> = given.iter().map(ToString::to_string).collect();
    vec![
        // CUDA's own order is by speed; the management library's numbers are in the order of the bus.
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned()),
        ("CUDA_VISIBLE_DEVICES", numbers.join(",")),
    ]
}

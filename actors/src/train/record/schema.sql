-- The run record: runs/<name>/record.sqlite. Rates are in 10^9 floating-point
-- operations a second, times in seconds unless a name says otherwise.

CREATE TABLE run (
    id            INTEGER PRIMARY KEY CHECK (id = 1),
    problem       TEXT NOT NULL,
    job           TEXT NOT NULL,           -- the job file, as first run
    seed          INTEGER NOT NULL,
    nodes         INTEGER NOT NULL,        -- node processes in the cluster
    machine       TEXT NOT NULL,           -- facts of the measuring node, JSON
    peak_gflops   REAL,                    -- measured peak of the benchmark's slot
    elapsed_s     REAL NOT NULL DEFAULT 0, -- wall time over all starts
    finished      INTEGER NOT NULL DEFAULT 0
) STRICT;

-- One row for each time the job was started or resumed.
CREATE TABLE starts (
    n             INTEGER PRIMARY KEY,
    unix_s        INTEGER NOT NULL,
    job           TEXT NOT NULL,
    versions      TEXT NOT NULL            -- of program, compiler, libtorch..., JSON
) STRICT;

CREATE TABLE corpus (
    body          TEXT PRIMARY KEY,
    techniques    TEXT NOT NULL,           -- JSON array
    gflops        TEXT NOT NULL,           -- JSON array, one for each measurement
    kept          INTEGER NOT NULL
) STRICT;

CREATE TABLE steps (
    step           INTEGER PRIMARY KEY,    -- from 1; 0 is not learnt from
    mean_gflops    REAL,                   -- over all samples, failures as 0
    best_gflops    REAL,
    compiled_share REAL,
    verified_share REAL,
    distinct_mean  REAL,                   -- different right kernels a group
    entropy        REAL,                   -- nats a token
    kl             REAL,
    loss           REAL,
    clip_fraction  REAL,
    grad_norm      REAL,
    rollout_s      REAL NOT NULL,
    verifier_s     REAL NOT NULL,
    benchmark_s    REAL NOT NULL,
    learner_s      REAL NOT NULL,
    publish_s      REAL NOT NULL
) STRICT;

CREATE TABLE samples (
    step           INTEGER NOT NULL REFERENCES steps (step) ON DELETE CASCADE,
    grp            INTEGER NOT NULL,
    sample         INTEGER NOT NULL,       -- within its group
    policy_version INTEGER NOT NULL,       -- of the weights that wrote it; 0 is warm-started
    code           TEXT NOT NULL,
    hash           TEXT NOT NULL,          -- of the code's normal form
    tokens         INTEGER NOT NULL,
    mean_log_prob  REAL,
    entropy        REAL,
    verdict        TEXT NOT NULL CHECK (verdict IN ('correct', 'format', 'library', 'compile',
                       'timeout', 'runtime', 'wrong', 'contaminated', 'unmeasured')),
    detail         TEXT NOT NULL,
    gflops         REAL,                   -- NULL unless verdict is 'correct'
    gflops_low     REAL,
    gflops_high    REAL,
    calls          INTEGER,                -- timed, every one of them verified
    contamination  TEXT,                   -- JSON
    reward         REAL,                   -- NULL: left out of its group
    advantage      REAL,
    rollout_s      REAL NOT NULL,
    verifier_s     REAL NOT NULL,
    benchmark_s    REAL NOT NULL,
    share_of_peak  REAL,                   -- of the slot's measured peak
    calibration    TEXT,                   -- JSON: rates of a fixed work on that core then
    class          TEXT,                   -- of the node that measured; rates compare within one only
    node           TEXT,                   -- that measured
    measurement    TEXT,                   -- its number: samples with one number share one measurement
    PRIMARY KEY (step, grp, sample)
) STRICT, WITHOUT ROWID;

-- Kernels that were judged with a step and that its policy did not write in it.
CREATE TABLE guests (
    step           INTEGER NOT NULL REFERENCES steps (step) ON DELETE CASCADE,
    guest          INTEGER NOT NULL,       -- within its step
    origin         TEXT NOT NULL CHECK (origin IN ('archive', 'emitter')),
    grp            INTEGER,                -- the group that it joined; NULL: it was only measured
    code           TEXT NOT NULL,
    hash           TEXT NOT NULL,
    verdict        TEXT NOT NULL,          -- as a sample's
    detail         TEXT NOT NULL,
    gflops         REAL,
    gflops_low     REAL,
    gflops_high    REAL,
    calls          INTEGER,
    contamination  TEXT,
    reward         REAL,
    advantage      REAL,
    verifier_s     REAL NOT NULL,
    benchmark_s    REAL NOT NULL,
    share_of_peak  REAL,                   -- of the slot's measured peak
    calibration    TEXT,                   -- JSON: rates of a fixed work on that core then
    class          TEXT,                   -- of the node that measured; rates compare within one only
    node           TEXT,                   -- that measured
    measurement    TEXT,                   -- its number
    PRIMARY KEY (step, guest)
) STRICT, WITHOUT ROWID;

-- What the best kernel is compared with, each with the median of its measurements.
CREATE TABLE rivals (
    kind          TEXT PRIMARY KEY
                  CHECK (kind IN ('corpus_best', 'random_best', 'openblas', 'best_again')),
    code          TEXT NOT NULL,
    gflops        REAL NOT NULL,
    measured      INTEGER NOT NULL         -- measurements
) STRICT;

-- The single measurements behind the rivals, taken in turn.
CREATE TABLE finals (
    round         INTEGER NOT NULL,
    kind          TEXT NOT NULL REFERENCES rivals (kind) ON DELETE CASCADE,
    gflops        REAL NOT NULL,
    gflops_low    REAL NOT NULL,
    gflops_high   REAL NOT NULL,
    calls         INTEGER NOT NULL,
    PRIMARY KEY (round, kind)
) STRICT;

PRAGMA user_version = 4;

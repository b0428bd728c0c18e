-- From schema 2 to 3: where and in what circumstances a rate was measured. Rates from before have none.
ALTER TABLE samples ADD COLUMN share_of_peak REAL;
ALTER TABLE samples ADD COLUMN calibration TEXT;
ALTER TABLE samples ADD COLUMN class TEXT;
ALTER TABLE guests ADD COLUMN share_of_peak REAL;
ALTER TABLE guests ADD COLUMN calibration TEXT;
ALTER TABLE guests ADD COLUMN class TEXT;
PRAGMA user_version = 3;

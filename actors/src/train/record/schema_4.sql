-- From schema 3 to 4: which node measured a rate, and in which measurement. Rates from before have none.
ALTER TABLE samples ADD COLUMN node TEXT;
ALTER TABLE samples ADD COLUMN measurement TEXT;
ALTER TABLE guests ADD COLUMN node TEXT;
ALTER TABLE guests ADD COLUMN measurement TEXT;
PRAGMA user_version = 4;

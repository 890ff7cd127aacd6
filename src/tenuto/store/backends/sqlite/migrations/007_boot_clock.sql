-- How far the wall clock was ahead of the boot clock when a boot of the machine first opened the file, in microseconds: leases are
-- judged by it. One row, of the boot that opened it last.
CREATE TABLE IF NOT EXISTS boot_clock (
    boot TEXT NOT NULL,
    ahead INTEGER NOT NULL
) STRICT;

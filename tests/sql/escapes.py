"""Ways out of a SELECT: to files, to the network, to programs, to other tables. For tests.

`{secret}` is a file that holds the canary, `{out}` a file that must not appear, `{port}` a socket that listens.
"""

CANARY = "canary-3f1c"

# read a file
FILES = """
SELECT file('{secret}')
SELECT file('{secret}', 'default')
SELECT FILE('{secret}')
SELECT `file`('{secret}')
SELECT "file"('{secret}')
SELECT /* plain */ file -- now
('{secret}')
SELECT upper(file('{secret}'))
SELECT length(file('{secret}'))
SELECT substring(file('{secret}'), 1, 5)
SELECT arrayMap(x -> file(x), ['{secret}'])
SELECT arrayFilter(x -> file(x) != '', ['{secret}'])
SELECT if(1, file('{secret}'), '')
SELECT 1 WHERE file('{secret}') LIKE 'c%'
SELECT 1 ORDER BY file('{secret}')
SELECT count() GROUP BY file('{secret}')
SELECT count() HAVING file('{secret}') != ''
SELECT (SELECT file('{secret}'))
WITH file('{secret}') AS x SELECT x
WITH x AS (SELECT file('{secret}') AS y) SELECT y FROM x
SELECT * FROM (SELECT file('{secret}'))
SELECT 1 UNION ALL SELECT length(file('{secret}'))
(SELECT 1) UNION ALL (SELECT length(file('{secret}')))
SELECT 'a' INTERSECT SELECT file('{secret}')
SELECT 'a' EXCEPT SELECT file('{secret}')
SELECT 1 WHERE 'a' IN (SELECT file('{secret}'))
SELECT 1 WHERE EXISTS (SELECT file('{secret}') AS f WHERE f = '')
SELECT sum(length(file('{secret}'))) OVER ()
SELECT 1 LIMIT length(file('{secret}'))
SELECT * FROM file('{secret}', LineAsString)
SELECT * FROM file('{secret}', 'LineAsString', 'x String')
SELECT * FROM file('{secret}', RawBLOB)
SELECT * FROM file('{secret}', One)
SELECT * FROM file('{folder}/*', LineAsString)
SELECT * FROM file('{folder}/../../../../../../etc/passwd', LineAsString)
SELECT * FROM file('/proc/self/environ', LineAsString)
SELECT * FROM file('/proc/1/environ', LineAsString)
SELECT * FROM file('/proc/self/root{secret}', LineAsString)
SELECT * FROM file('/proc/self/cmdline', RawBLOB)
SELECT * FROM file('/proc/self/maps', LineAsString)
SELECT * FROM file('/dev/stdin', LineAsString)
SELECT * FROM file('/proc/self/fd/0', LineAsString)
SELECT * FROM file('metadata/*', LineAsString)
SELECT * FROM `file`('{secret}', LineAsString)
SELECT _path, _file FROM file('/etc/*', One)
SELECT _size FROM file('/etc/hostname', One)
FROM file('{secret}', LineAsString) SELECT *
SELECT * FROM calve.processes AS p LEFT JOIN file('{secret}', LineAsString) AS f ON 1
SELECT * FROM calve.processes, file('{secret}', LineAsString)
SELECT 1 WHERE 1 IN (SELECT 1 FROM file('{secret}', LineAsString))
SELECT (SELECT any(line) FROM file('{secret}', LineAsString))
WITH t AS (SELECT * FROM file('{secret}', LineAsString)) SELECT * FROM t
SELECT * FROM fileCluster('default', '{secret}', LineAsString)
SELECT * FROM view(SELECT * FROM file('{secret}', LineAsString))
SELECT * FROM (EXPLAIN SELECT * FROM file('{secret}', LineAsString))
SELECT * FROM viewExplain('EXPLAIN', '', (SELECT * FROM file('{secret}', LineAsString)))
SELECT * FROM loop(file('{secret}', LineAsString)) LIMIT 1
SELECT * FROM sqlite('{secret}', 'x')
SELECT * FROM filesystem('{folder}')
SELECT * FROM icebergLocal('{folder}')
SELECT * FROM deltaLakeLocal('{folder}')
SELECT * FROM hudi('file://{folder}')
SELECT * FROM mergeTreeIndex('calve', 'processes')
DESCRIBE TABLE file('{secret}', CSV)
INSERT INTO calve.processes SELECT * FROM file('{secret}', LineAsString)
INSERT INTO calve.processes (id) FROM INFILE '{secret}' FORMAT LineAsString
CREATE TABLE calve.x (x String) ENGINE = File(LineAsString, '{secret}')
CREATE TABLE calve.x ENGINE = Memory AS SELECT * FROM file('{secret}', LineAsString)
CREATE TEMPORARY TABLE x AS file('{secret}', LineAsString)
CREATE VIEW calve.v AS SELECT * FROM file('{secret}', LineAsString)
CREATE DATABASE x ENGINE = Filesystem('{folder}')
CREATE DATABASE x ENGINE = SQLite('{folder}/x.db')
CREATE DATABASE x ENGINE = Atomic
ATTACH TABLE calve.x FROM '{folder}' (x String) ENGINE = Log
RESTORE ALL FROM File('{folder}')
CREATE FUNCTION f AS x -> file(x)
CREATE DICTIONARY calve.d (k UInt64, v String) PRIMARY KEY k SOURCE(FILE(PATH '{secret}' FORMAT 'TSV')) LAYOUT(FLAT()) LIFETIME(0)
""".strip()

# write a file
OUT = """
SELECT 1 INTO OUTFILE '{out}'
SELECT 1 INTO OUTFILE '{out}' FORMAT CSV
SELECT 1 INTO OUTFILE '{out}' TRUNCATE
SELECT 1 INTO OUTFILE '{out}' APPEND
SELECT 1 INTO OUTFILE '{out}' AND STDOUT
SELECT 1 INTO OUTFILE '{out}' COMPRESSION 'gzip' LEVEL 1
SELECT 1 into outfile '{out}'
SELECT 1 INTO/**/OUTFILE '{out}'
(SELECT 1) INTO OUTFILE '{out}'
SELECT 1 UNION ALL SELECT 2 INTO OUTFILE '{out}'
WITH 1 AS x SELECT x INTO OUTFILE '{out}' FORMAT TSV
SELECT * FROM calve.processes INTO OUTFILE '{out}' FORMAT Parquet
EXPLAIN SELECT 1 INTO OUTFILE '{out}'
SHOW DATABASES INTO OUTFILE '{out}'
DESCRIBE TABLE calve.processes INTO OUTFILE '{out}'
INSERT INTO FUNCTION file('{out}', CSV) SELECT 1
INSERT INTO TABLE FUNCTION file('{out}', 'CSV', 'x Int8') VALUES (1)
CREATE TABLE calve.y (x String) ENGINE = File(CSV, '{out}')
CREATE TABLE calve.y (x String) ENGINE = MergeTree ORDER BY x
CREATE TABLE calve.y (x String) ENGINE = Log
CREATE TABLE default.y (x String) ENGINE = TinyLog
CREATE TABLE default.y (x String) ENGINE = Set
BACKUP TABLE calve.processes TO File('{out}')
BACKUP DATABASE calve TO Disk('default', 'b')
CREATE USER evil
CREATE NAMED COLLECTION evil AS a = 1
CREATE FUNCTION f AS x -> x
""".strip()

# reach another machine
NETWORK = """
SELECT * FROM url('http://127.0.0.1:{port}/x', TSV, 'a String')
SELECT * FROM url('http://127.0.0.1:{port}/x')
SELECT * FROM urlCluster('default', 'http://127.0.0.1:{port}/x', TSV, 'a String')
SELECT * FROM calve.processes WHERE id IN (SELECT a FROM url('http://127.0.0.1:{port}/x', TSV, 'a String'))
SELECT (SELECT a FROM url('http://127.0.0.1:{port}/x', TSV, 'a String'))
SELECT * FROM s3('http://127.0.0.1:{port}/b/x', 'k', 's', TSV, 'a String')
SELECT * FROM s3('http://127.0.0.1:{port}/b/x', NOSIGN, TSV, 'a String')
SELECT * FROM gcs('http://127.0.0.1:{port}/b/x', NOSIGN, TSV, 'a String')
SELECT * FROM cosn('http://127.0.0.1:{port}/b/x', 'k', 's', TSV, 'a String')
SELECT * FROM oss('http://127.0.0.1:{port}/b/x', 'k', 's', TSV, 'a String')
SELECT * FROM s3Cluster('default', 'http://127.0.0.1:{port}/b/x', 'k', 's', TSV, 'a String')
SELECT * FROM azureBlobStorage('http://127.0.0.1:{port}/a', 'c', 'x', 'acc', 'a2V5', TSV, 'auto', 'a String')
SELECT * FROM hdfs('hdfs://127.0.0.1:{port}/x', TSV, 'a String')
SELECT * FROM remote('127.0.0.1:{port}', 'system', 'one')
SELECT * FROM remoteSecure('127.0.0.1:{port}', 'system', 'one')
SELECT * FROM mysql('127.0.0.1:{port}', 'd', 't', 'u', 'p')
SELECT * FROM postgresql('127.0.0.1:{port}', 'd', 't', 'u', 'p')
SELECT * FROM mongodb('127.0.0.1:{port}', 'd', 't', 'u', 'p', 'a String')
SELECT * FROM redis('127.0.0.1:{port}', 'a', 'a String, b String')
SELECT * FROM iceberg('http://127.0.0.1:{port}/b/x', 'k', 's')
SELECT * FROM icebergS3('http://127.0.0.1:{port}/b/x', 'k', 's')
SELECT * FROM deltaLake('http://127.0.0.1:{port}/b/x', 'k', 's')
SELECT * FROM hudi('http://127.0.0.1:{port}/b/x', 'k', 's')
SELECT * FROM paimon('http://127.0.0.1:{port}/b/x', 'k', 's')
SELECT * FROM arrowFlight('127.0.0.1:{port}', 'x')
SELECT * FROM ytsaurus('http://127.0.0.1:{port}', '//x', 't', 'a String')
SELECT * FROM prometheusQuery('calve', 'x', 'up', now())
SELECT * FROM cluster('default', 'system', 'one')
SELECT * FROM clusterAllReplicas('default', 'system', 'one')
INSERT INTO FUNCTION url('http://127.0.0.1:{port}/x', TSV, 'a String') VALUES ('x')
INSERT INTO FUNCTION remote('127.0.0.1:{port}', 'd', 't') VALUES (1)
CREATE TABLE calve.u (x String) ENGINE = URL('http://127.0.0.1:{port}/x', TSV) AS SELECT 'a'
CREATE DATABASE m ENGINE = MySQL('127.0.0.1:{port}', 'd', 'u', 'p')
CREATE DATABASE p ENGINE = PostgreSQL('127.0.0.1:{port}', 'd', 'u', 'p')
BACKUP TABLE calve.processes TO S3('http://127.0.0.1:{port}/b/x', 'k', 's')
RESTORE TABLE calve.processes FROM S3('http://127.0.0.1:{port}/b/x', 'k', 's')
""".strip()

# start a program
PROGRAMS = """
SELECT * FROM executable('id', TSV, 'a String')
SELECT * FROM executable('sh -c "cat {secret}"', TSV, 'a String')
SELECT * FROM executable('../../../bin/sh', TSV, 'a String', (SELECT 1))
SELECT * FROM executablePool('id', TSV, 'a String')
SELECT * FROM python('x')
CREATE TABLE calve.e (x String) ENGINE = Executable('id', TSV)
CREATE TABLE calve.e (x String) ENGINE = ExecutablePool('id', TSV)
CREATE DICTIONARY calve.e (k UInt64, v String) PRIMARY KEY k SOURCE(EXECUTABLE(COMMAND 'id' FORMAT TSV)) LAYOUT(FLAT()) LIFETIME(0)
SELECT dictGet('calve.e', 'v', 1)
""".strip()

# hide something from the list
DISGUISES = """
SELECT 1; SELECT file('{secret}')
SELECT 1;;SELECT file('{secret}')
SELECT $a$'$a$, file('{secret}'), $a$'$a$
SELECT * APPLY(file) FROM (SELECT '{secret}' AS x)
SELECT * APPLY(x -> file(x)) FROM (SELECT '{secret}' AS x)
SELECT COLUMNS('x') APPLY(file) FROM (SELECT '{secret}' AS x)
SELECT * REPLACE (file(x) AS x) FROM (SELECT '{secret}' AS x)
SELECT file('{secret}') SETTINGS readonly = 0
SELECT * FROM url('http://127.0.0.1:{port}/', TSV, 'a String') SETTINGS readonly = 0, http_max_tries = 1
SELECT 1 AS `x (children 9)`, file('{secret}')
SELECT 1 AS `x\\n SelectQuery (children 0)`, file('{secret}')
SELECT file('{secret}') AS `f (alias plus)`
SELECT file('{secret}') PARALLEL WITH SELECT 1
SELECT joinGet('calve.j', 'v', file('{secret}'))
SELECT catboostEvaluate('{secret}', 1)
SELECT initializeAggregation('sumState', file('{secret}'))
SELECT arrayReduce('any', [file('{secret}')])
SELECT evalMLMethod(file('{secret}'), 1)
SELECT FORMAT(file('{secret}'))
""".strip()


def escapes(**places: object) -> list[str]:
    texts = "\n".join((FILES, OUT, NETWORK, PROGRAMS, DISGUISES)).replace("-- now\n", "-- now\x00")
    lines = [line.replace("\x00", "\n") for line in texts.split("\n")]
    return [_filled(line, places) for line in lines]


def _filled(line: str, places: dict[str, object]) -> str:
    for name, value in places.items():
        line = line.replace(f"{{{name}}}", str(value))
    return line

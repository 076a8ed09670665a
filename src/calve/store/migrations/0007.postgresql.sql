-- What a cluster grants the worker's Spark.
ALTER TABLE workers ADD COLUMN granted TEXT;

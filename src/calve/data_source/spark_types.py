"""Iceberg types as Spark's: the schema that a job sees is that of the exported table."""

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestamptzType,
)
from pyspark.sql import types as spark

from calve.export.choices import Choices, UuidAs

# Spark has no type for UUIDs: Iceberg's runtime shows them as text too.
MAPPED_AS = Choices(uuid=UuidAs.STRING)


def spark_type(kind: IcebergType) -> spark.DataType:
    """As Iceberg's Spark runtime shows them. UUIDs are strings by then: see `MAPPED_AS`."""
    match kind:
        case BooleanType():
            return spark.BooleanType()
        case IntegerType():
            return spark.IntegerType()
        case LongType():
            return spark.LongType()
        case FloatType():
            return spark.FloatType()
        case DoubleType():
            return spark.DoubleType()
        case DecimalType():
            return spark.DecimalType(kind.precision, kind.scale)
        case DateType():
            return spark.DateType()
        case TimestamptzType():
            return spark.TimestampType()
        case StringType():
            return spark.StringType()
        case BinaryType() | FixedType():
            return spark.BinaryType()
        case ListType():
            return spark.ArrayType(spark_type(kind.element_type), not kind.element_required)
        case MapType():
            return spark.MapType(
                spark_type(kind.key_type), spark_type(kind.value_type), not kind.value_required
            )
        case StructType():
            return spark.StructType(
                [
                    spark.StructField(field.name, spark_type(field.field_type), not field.required)
                    for field in kind.fields
                ]
            )
        case _:
            raise TypeError(f"no Spark type for {kind}")

import java.util.HexFormat;
import java.nio.ByteBuffer;
import java.util.Scanner;

import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Kafka's own image of the logs on standard input. A line is the value of a record in hexadecimal, "apply" where the image
 * is published, or "write", which prints the image as the records of a snapshot, an empty line, and begins anew. A record
 * that cannot be replayed prints "fault" instead.
 */
public class ImageOracle {
    public static void main(String[] args) {
        MetadataImage image = MetadataImage.EMPTY;
        MetadataDelta delta = deltaOf(image);
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String line = lines.nextLine();
            if (line.equals("apply")) {
                image = delta.apply(MetadataProvenance.EMPTY);
                delta = deltaOf(image);
            } else if (line.equals("write")) {
                print(delta.apply(MetadataProvenance.EMPTY));
                image = MetadataImage.EMPTY;
                delta = deltaOf(image);
            } else {
                byte[] value = HexFormat.of().parseHex(line);
                try {
                    delta.replay(MetadataRecordSerde.INSTANCE
                        .read(new ByteBufferAccessor(ByteBuffer.wrap(value)), value.length).message());
                } catch (RuntimeException fault) {
                    System.out.println("fault");
                }
            }
        }
    }

    private static MetadataDelta deltaOf(MetadataImage image) {
        return new MetadataDelta.Builder().setImage(image).build();
    }

    private static void print(MetadataImage image) {
        RecordListWriter writer = new RecordListWriter();
        image.write(writer, new ImageWriterOptions.Builder(image).setLossHandler(loss -> { }).build());
        for (ApiMessageAndVersion record : writer.records()) {
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer buffer = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
            MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(buffer));
            System.out.println(HexFormat.of().formatHex(buffer.array()));
        }
        System.out.println();
    }
}

import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Scanner;

import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.CloseableIterator;

/** Whether Kafka 4.4 reads a batch whose records may have so many bytes: a line is the limit and the batch in hex. */
public class DecompressedOracle {
    public static void main(String[] args) {
        Scanner words = new Scanner(System.in);
        while (words.hasNext()) {
            int most = words.nextInt();
            ByteBuffer data = ByteBuffer.wrap(HexFormat.of().parseHex(words.next()));
            String answer = "read";
            try {
                for (MutableRecordBatch batch : MemoryRecords.readableRecords(data).batches()) {
                    try (CloseableIterator<Record> some = batch.skipKeyValueIterator(BufferSupplier.NO_CACHING, most);
                         CloseableIterator<Record> all = batch.streamingIterator(BufferSupplier.NO_CACHING, most)) {
                        some.forEachRemaining(one -> { });
                        all.forEachRemaining(one -> { });
                    }
                }
            } catch (RuntimeException refused) {
                answer = refused.getClass().getSimpleName();
            }
            System.out.println(answer);
        }
    }
}

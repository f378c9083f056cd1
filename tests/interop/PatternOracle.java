import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

/**
 * Tells what RE2/J, with which Kafka's coordinators match the patterns of clients, says of patterns. A line has a
 * pattern and texts, each in base64 and separated by tabs. The answer is "refused", "hangs", or a digit for each text.
 */
public class PatternOracle {
    public static void main(String[] args) throws IOException, InterruptedException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            String[] told = {"hangs"};
            // RE2/J never ends with some letters under (?i).
            Thread thread = new Thread(null, () -> told[0] = answer(words), "pattern", 8 << 20);
            thread.setDaemon(true);
            thread.start();
            thread.join(2000);
            out.println(told[0]);
        }
        System.exit(0);
    }

    private static String answer(String[] words) {
        Pattern pattern;
        try {
            pattern = Pattern.compile(text(words[0]));
        } catch (PatternSyntaxException refused) {
            return "refused";
        } catch (RuntimeException | StackOverflowError failed) {
            return "failed " + failed.getClass().getName();
        }
        StringBuilder found = new StringBuilder();
        for (int at = 1; at < words.length; at++)
            found.append(pattern.matcher(text(words[at])).matches() ? '1' : '0');
        return found.toString();
    }

    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }
}
